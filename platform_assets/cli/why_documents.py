"""The document that `tidemark why --json` prints."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel

from platform_assets.cli.documents import Document, VerdictDocument


class FilesDocument(BaseModel):
    """The number of files of logs, and of dimensions, that were read, and of how many."""

    read: int
    of: int


class InputDocument(BaseModel):
    """A row of a log that a result is made of, or could have been; see `tidemark.why`.

    `line` is that of its file at which it begins, from 1; null where that is not known.
    """

    stream: str
    place: str
    origin: dict[str, Any]
    batch: int
    values: dict[str, Any]
    event_time: datetime | None
    ingested_at: datetime | None
    stamp: datetime | None
    late: bool
    counts: bool
    reason: str
    change: int
    sequence: str | None
    repairs: int | None
    line: int | None


class RejectedDocument(BaseModel):
    """A rejected row that is of a result as far as can be told: `certain` is false where a part of its key is not."""

    stream: str
    place: str
    origin: dict[str, Any]
    batch: int
    reasons: list[str]
    payload: str | None
    certain: bool
    repaired_in: int | None
    line: int | None


class ChangeDocument(BaseModel):
    """A change of what is current of a result: `causes` are the late rows that it was the first to count."""

    revision: int
    reason: str
    was: list[dict[str, Any]]
    now: list[dict[str, Any]]
    told_at: datetime | None
    corrected_at: datetime | None
    through: dict[str, int]
    causes: list[str]


class PinDocument(BaseModel):
    """The newest batch of a control stream or history that rows of some batches have seen, or timers, where null."""

    of: str
    newest: int
    stream: str
    first: int | None
    last: int | None


class JudgedDocument(VerdictDocument):
    """A verdict of the gate on a table that a report was made of, and when it was judged."""

    judged_at: datetime


class AnswerDocument(Document):
    """The answer on one result; `agrees` is null where nothing is published, or nothing can be recomputed."""

    pipeline: str
    operator: str
    kind: str
    what: str
    key: dict[str, Any]
    agrees: bool | None
    said: str
    published: list[dict[str, Any]]
    recomputed: list[dict[str, Any]]
    inputs: list[InputDocument]
    rejected: list[RejectedDocument]
    changes: list[ChangeDocument]
    rules: dict[str, str]
    pins: list[PinDocument]
    versions: dict[str, Any]
    verdicts: list[JudgedDocument]
    upstream: list[AnswerDocument]
    notes: list[str]
    files: FilesDocument


class WhyDocument(AnswerDocument):
    """`tidemark why --json`; `upstream` are the answers on the results that the rows of this one are."""

    lake: str
