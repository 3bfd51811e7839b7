"""The columns of an enrichment's tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from streaming.base import DAY, ORIGIN
from streaming.declare.columns import ColumnSpec

FAILURE = {
    "kind": ("string", "Why there is no answer: `timeout` or `error`."),
    "error": ("string", "What the last attempt ended with, or which column cannot be computed."),
    "attempts": ("int", "How often it was asked; 0 where a column cannot be computed."),
}
"""What the side output of failures tells of each, with types and meanings."""


def answer_columns(of: Iterable[tuple[str, str]], result: Mapping[str, str]) -> Iterator[ColumnSpec]:
    """What a call answers with; `of` are the columns of the log that it is handed."""
    given = tuple(of)
    for name, type_ in result.items():
        yield ColumnSpec(name, "Answer of the call.", type_, given)


def failure_columns() -> Iterator[ColumnSpec]:
    """Why a row has no answer."""
    for name, (type_, meaning) in FAILURE.items():
        yield ColumnSpec(name, meaning, type_)


def place_columns() -> Iterator[ColumnSpec]:
    """Where a row of any of the tables is from."""
    yield ColumnSpec("_at", "Event time of the row.", "timestamp")
    yield ColumnSpec("_batch", "Number of the batch that brought the row, in the log's own sequence.", "bigint")
    yield ColumnSpec(ORIGIN, "Where the row's source had it.", "struct")


def asked_columns(answered: bool) -> Iterator[ColumnSpec]:
    """When and how the row was asked for; `answered`: of rows with an answer."""
    yield ColumnSpec("_asked_at", "When the answer, or the last attempt at one, was asked for.", "timestamp")
    yield ColumnSpec("_answered_at", "When it came, or was given up.", "timestamp")
    if answered:
        yield ColumnSpec("_attempt", "Which attempt was answered, from 1 on; 0 where none was made.", "int")
        yield ColumnSpec("_cached", "Whether the answer to an earlier row of the same key was taken.", "boolean")
        yield ColumnSpec("_error", "Why there is no answer, where defaults or nulls take its place.", "string")
    yield ColumnSpec("_version", "The declared version of the call.", "int")
    yield ColumnSpec("_step", "Number of the step that wrote the row; a later step has a greater one.", "bigint")
    yield ColumnSpec("_written_at", "When the row was written.", "timestamp")
    yield ColumnSpec(DAY, "Date of the event time, UTC.", "date")


def pending_columns() -> Iterator[ColumnSpec]:
    """What is kept of a row that waits."""
    yield ColumnSpec("_asked_at", "When it was asked for last; null where it waits for its turn.", "timestamp")
    yield ColumnSpec("_attempts", "How many attempts were begun.", "int")
    yield ColumnSpec("_error", "What the last attempt ended with, or which column cannot be computed.", "string")
    yield ColumnSpec("_request", "The idempotency key with which it is asked for.", "string")
