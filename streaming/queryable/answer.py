"""Questions to an operator, and their answers: rows that are all of one step, which is named."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain
from typing import Any

from deltalake import DeltaTable

from streaming.base import EPOCH, NotThere, by_kind
from streaming.declare import Operator
from streaming.lake import Lake
from streaming.tables import newest_commits

_THROUGH = "through"
"""The entry that the commit of a step has, and no other: the last batch that it followed."""


@dataclass(frozen=True)
class Answer:
    """The latest values of one key or of all, as they were after a step.

    `batch` is the last one of the log that the step had followed, of several logs that of each, by stream; `watermark`
    the clock's after it, `written_at` the time of its commit. `more`: there are more rows than were asked for.
    """

    batch: int | Mapping[str, int]
    watermark: datetime | None
    written_at: datetime
    rows: list[dict[str, Any]]
    more: bool = False


class Latest(ABC):
    """The latest values of an operator, by key. It is found by the operator's type: `latest_of.register`."""

    @property
    @abstractmethod
    def keys(self) -> tuple[str, ...]:
        """The columns of the key."""

    @abstractmethod
    def read(self, key: Mapping[str, str], limit: int) -> Answer:
        """The values of the keys whose columns are what `key` says in text, at most `limit` rows.

        Raises:
            NotThere: nothing is computed yet.
            QueryError: a column is none of the key, or the text is no value of its type.
        """


@by_kind
def latest_of(operator: Operator, lake: Lake) -> Latest | None:
    """The latest values of an operator; None of one that keeps nothing by key."""
    return None


def answered(
    table: DeltaTable,
    batch: int | Mapping[str, int],
    watermark: datetime | None,
    rows: list[dict[str, Any]],
    limit: int,
) -> Answer:
    """The answer that the open `table`, which is at that batch and watermark, gives with these rows."""
    return Answer(batch, watermark, _written_at(table), rows[:limit], len(rows) > limit)


def _written_at(table: DeltaTable) -> datetime:
    """When the last step of the open table was committed, and not when its files were last compacted."""
    commits = newest_commits(table)
    newest = next(commits)
    # Commits are cleaned away after a month; a table without one of a step had none since.
    commit = next(filter(_is_of_a_step, chain([newest], commits)), newest)
    return EPOCH + timedelta(milliseconds=commit["timestamp"])


def _is_of_a_step(commit: Mapping[str, Any]) -> bool:
    return isinstance(commit["userMetadata"], dict) and _THROUGH in commit["userMetadata"]


def nothing_yet(operator: Operator) -> NotThere:
    """The error of an operator that has no table yet."""
    return NotThere(
        f"{operator.name!r} has computed nothing yet; run `tidemark run {operator.folder}` first, or point "
        "TIDEMARK_HOME to the lake that has it."
    )
