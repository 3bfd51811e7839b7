"""The declaration of an enrichment: the rows of a stream, each with the answer of a call to somewhere else."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa

from streaming.base import (
    AT,
    BATCH,
    DAY,
    INGESTED_AT,
    ORIGIN,
    STEP_COLUMN,
    DeclarationError,
    Types,
    arrow_schema,
    check_column_name,
    check_name,
    check_number,
    encoder,
    interval,
    settle,
)
from streaming.declare.columns import ColumnSpec
from streaming.declare.functions import check_callable
from streaming.declare.keyed_checks import check_keys_are_exact
from streaming.declare.operator import FAILED, PENDING, Operator, TableSpec, check_dimension
from streaming.declare.selected import check_side, side_columns
from streaming.declare.side import Side
from streaming.declare.stream import Stream

LookupOrder = Literal["arrival", "as they come"]
OnFailure = Literal["side", "null", "default"]
_FAILURE = {
    "kind": ("string", "Why there is no answer: `timeout` or `error`."),
    "error": ("string", "What the last attempt ended with, or which column cannot be computed."),
    "attempts": ("int", "How often it was asked; 0 where a column cannot be computed."),
}
"""The columns of the side output of failures, with types and meanings."""


@dataclass(frozen=True)
class LookupRequest:
    """The facts that a call is told besides its row.

    `key`: the idempotency key, the same whenever the same row is asked for again, also after a crash. `attempt`: from 1
    on. `opened`: what `opens` gave, None without it.
    """

    key: str
    attempt: int
    opened: Any = None


@dataclass(frozen=True)
class Enriched(Operator):
    """The valid rows of the stream `of`, each with the answer of `call` (as Flink's asynchronous I/O).

    `call(row, request)` is an `async` function, of which `capacity` (100 if left out) wait for answers at a time; or a
    plain one, which is run in as many processes (one per core if left out) that are killed where they hang. The row has
    the selected columns as attributes, times as whole microseconds; `request` is a `LookupRequest`. It returns a
    mapping with the columns of `result`, such as `{"room": "string"}`, or None where there is nothing to be found: then
    `default` takes the place of the answer. `opens()` is a context manager (of an async call an async one), entered
    once, whose value is `request.opened`: a client or a pool. It defaults to the call's own `opens`, where it has one.

    With a `key` rows that are equal in these columns share a call, which is handed no other column, and `cache` keeps
    answers for that long.

    An attempt takes at most `timeout`; `retries` more follow, each later than the one before. What then has no answer
    goes to the side output `failed` with why (`on_failure="side"`), or to the results with nulls or defaults, and
    `_error`; so does a row of which a selected column cannot be computed, without an attempt. Rows that wait are in the
    table `pending` and are worked off by later steps.

    `order="arrival"`: rows come out in the order of the log, so one that waits holds back those behind it. `"as they
    come"`: each as soon as it has its answer; a stream that follows the table may find it late by its own clock.

    What is answered is never asked again, and nothing of it can be rebuilt: `version` is written to each row, and
    another call, key or timeout is adopted from the next row on. A row that was asked for and not yet written when the
    process died is asked for once more, with the same `request.key`.

    `every` (an interval of processing time): how often a running pipeline steps it at most; left out, after each batch.

    Raises:
        DeclarationError: an unknown column, a name that is taken, or a call that cannot be found by its name.
    """

    name: str
    of: Stream
    call: Callable[[Any, LookupRequest], Any]
    result: Mapping[str, str]
    key: tuple[str, ...] = ()
    select: tuple[str, ...] | Mapping[str, str] | None = None
    timeout: str = "1 second"
    capacity: int | None = None
    retries: int = 0
    order: LookupOrder = "arrival"
    cache: str | None = None
    on_failure: OnFailure = "side"
    default: Mapping[str, Any] = field(default_factory=dict)
    opens: Callable[[], Any] | None = None
    version: int = 1
    description: str = ""
    every: str | None = None

    kind_name = "enrichment"

    def __post_init__(self) -> None:
        check_name(self.kind_name, self.name)
        settle(self, f"enrichment {self.name!r}")
        self._check_calls()
        for table in self.looks_up:
            if isinstance(table, Operator):
                check_dimension(self, table)
        _check_answers(self.name, self.result, self.default, self.on_failure)
        _check_asked_by(self.name, self.key, self.types, self.cache)
        added = {"the result": tuple(self.result), "the side output 'failed'": tuple(_FAILURE)}
        _check_names_free(self.name, self.types, added)

    def _check_calls(self) -> None:
        of = f"of enrichment {self.name!r}"
        check_callable(f"call {of}", self.call)
        if self.opens is not None:
            check_callable(f"opens {of}", self.opens)
        check_number(f"version={self.version!r} {of}", self.version, "version")
        check_number(f"retries={self.retries!r} {of}", self.retries, "number of retries", least=0)
        if self.capacity is not None:
            check_number(f"capacity={self.capacity!r} {of}", self.capacity, "number of calls")
        for length in filter(None, (self.timeout, self.cache, self.every)):
            interval(length)

    @property
    def reads(self) -> tuple[Stream, ...]:
        """The one stream."""
        return (self.of,)

    @property
    def looks_up(self) -> tuple[str | Operator, ...]:
        """Those that the call names as its `delta_tables`, where it does."""
        return tuple(getattr(self.call, "delta_tables", ()))

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        """The rows with their answers, those without one, and those that wait."""
        about = f": {self.description}" if self.description else ""
        failed, pending = f"Rows without an answer of {self.name}", f"Rows that wait for an answer of {self.name}"
        bounded = (AT, BATCH, STEP_COLUMN)
        return (
            TableSpec("", f"Rows of enrichment {self.name}{about}", bounded=bounded),
            TableSpec(FAILED, failed, is_result=False, bounded=bounded),
            TableSpec(PENDING, pending, is_result=False, is_state=True),
        )

    @property
    def never_rebuilt(self) -> str:
        """Its answers are the only record of what was answered."""
        return (
            "its answers were given once, by something outside of the log that may answer otherwise today. To ask for "
            "every row again, declare another enrichment under a new name"
        )

    @property
    def fingerprint(self) -> dict[str, Any]:
        """The facts its tables follow from; how it asks may change, as each row tells when and by which version."""
        return {
            "stream": self.of.name,
            "event time": self.of.event_time,
            "rows": self.selected.fingerprint,
            "result": dict(self.result),
        }

    @property
    def delivers(self) -> tuple[str, ...]:
        """Its rows, of whichever output."""
        return ("rows",)

    def columns_of(self, suffix: str = "") -> tuple[ColumnSpec, ...]:
        """The selected columns, the answer or why there is none, then where a row is from and when it was asked for."""
        selected = tuple(side_columns(self.reads, self.selected, self.types))
        if suffix == PENDING:
            return (*selected, *_place_columns(), *_pending_columns())
        asked = self.key or tuple(self.types)
        of = dict.fromkeys(one for spec in selected if spec.name in asked for one in spec.of)
        added = _answer_columns(of, self.result) if suffix == "" else _failure_columns()
        return (*selected, *added, *_place_columns(), *_asked_columns(answered=suffix == ""))

    @property
    def is_async(self) -> bool:
        """True if the call is a coroutine function, or an object whose `__call__` is one."""
        # Of an object, what its class defines as the call of it.
        return any(map(inspect.iscoroutinefunction, (self.call, type(self.call).__call__)))

    @property
    def opener(self) -> Callable[[], Any] | None:
        """The function that opens the client of the calls; None where there is nothing to open."""
        return self.opens or getattr(self.call, "opens", None)

    @property
    def selected(self) -> Side:
        """The columns that are handed to the call and written with the answer."""
        return Side(self.select)

    @cached_property
    def types(self) -> dict[str, str | None]:
        """The Spark type of each column that is selected; None where only Spark knows it."""
        added: Types = {ORIGIN: self.of.origin, "_batch": "bigint", INGESTED_AT: "timestamp"}
        return check_side(f"enrichment {self.name!r}", self.selected, self.of.types, added)

    @cached_property
    def answer_schema(self) -> pa.Schema:
        """The columns of a call's answer, in Arrow's types."""
        return _answer_schema(self.result)


def _check_answers(name: str, result: Mapping[str, str], default: Mapping[str, object], on_failure: str) -> None:
    """Refuse an answer without columns, and defaults that are none of it, do not fit, or are needed and not there.

    Raises:
        DeclarationError: with the columns that there are.
    """
    if not result:
        raise DeclarationError(
            f"result of enrichment {name!r} is empty", "write what a call answers with.", operator=name
        )
    for column in result:
        check_column_name(column)
    schema = _answer_schema(result)
    if unknown := [column for column in default if column not in result]:
        raise DeclarationError(
            f"default of enrichment {name!r} has {', '.join(map(repr, unknown))}, which no call answers with; columns "
            f"of the result are: {', '.join(result)}.",
            operator=name,
            choices=tuple(result),
        )
    for column, value in default.items():
        try:
            encoder(schema.field(column).type)(value)
        except ValueError as error:
            raise DeclarationError(
                f"default of enrichment {name!r} has {value!r} for {column!r}, which is a {result[column]}: {error}",
                "correct it.",
                operator=name,
            ) from error
    if on_failure == "default" and not default:
        raise DeclarationError(
            f"on_failure='default' of enrichment {name!r} needs one",
            f"write default={{{next(iter(result))!r}: ...}}.",
            operator=name,
        )


def _answer_schema(result: Mapping[str, str]) -> pa.Schema:
    """The columns of an answer that `result` declares, in Arrow's types.

    Raises:
        DeclarationError: a type that a table here cannot keep.
    """
    return arrow_schema(", ".join(f"`{name}` {type_}" for name, type_ in result.items()))


def _check_asked_by(name: str, key: tuple[str, ...], types: Types, cache: str | None) -> None:
    """Refuse a key that is none of the selected columns or is not exact, and a cache of answers that have no key.

    Raises:
        DeclarationError: with what to key by instead.
    """
    check_keys_are_exact(f"key of enrichment {name!r}", key, types)
    if cache is not None and not key:
        raise DeclarationError(
            f"cache={cache!r} of enrichment {name!r} keeps answers for a key, and there is none",
            "name the columns that an answer follows from, such as key=('id',).",
            field="cache",
            value=cache,
            operator=name,
        )


def _check_names_free(name: str, selected: Mapping[str, object], added: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse a selected column with the name of one that is `added` to a table.

    Raises:
        DeclarationError: with the name, and how to select it under another.
    """
    taken = {column.lower(): what for what, columns in added.items() for column in columns}
    for column in selected:
        if column.lower() in taken:
            raise DeclarationError(
                f"select of enrichment {name!r} has {column!r}, which is also a column of {taken[column.lower()]}",
                f"select it under another name, such as select={{'its_{column}': '{column}'}}.",
                operator=name,
            )


def _answer_columns(of: Iterable[tuple[str, str]], result: Mapping[str, str]) -> Iterator[ColumnSpec]:
    """The columns of a call's answer; `of` are the columns of the log that the call is handed."""
    given = tuple(of)
    for name, type_ in result.items():
        yield ColumnSpec(name, "Answer of the call.", type_, given)


def _failure_columns() -> Iterator[ColumnSpec]:
    """Why a row has no answer."""
    for name, (type_, meaning) in _FAILURE.items():
        yield ColumnSpec(name, meaning, type_)


def _place_columns() -> Iterator[ColumnSpec]:
    """Where a row of any of the tables is from."""
    yield ColumnSpec("_at", "Event time of the row.", "timestamp")
    yield ColumnSpec("_batch", "Number of the batch that brought the row, in the log's own sequence.", "bigint")
    yield ColumnSpec(ORIGIN, "Where the row's source had it.", "struct")


def _asked_columns(answered: bool) -> Iterator[ColumnSpec]:
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


def _pending_columns() -> Iterator[ColumnSpec]:
    """The columns that are kept of a row that waits for an answer."""
    yield ColumnSpec("_asked_at", "When it was asked for last; null where it waits for its turn.", "timestamp")
    yield ColumnSpec("_attempts", "How many attempts were begun.", "int")
    yield ColumnSpec("_error", "What the last attempt ended with, or which column cannot be computed.", "string")
    yield ColumnSpec("_request", "The idempotency key with which it is asked for.", "string")
