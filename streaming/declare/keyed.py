"""The declaration of a keyed function: state and timers per key, over the rows of one stream or several."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa

from streaming.base import (
    AT,
    BATCH,
    DAY,
    MICROSECOND,
    RETRACTED,
    SIGN,
    STAMP,
    WRITTEN_AT,
    arrow_schema,
    check_name,
    check_number,
    columns_of,
    interval,
    settle,
)
from streaming.declare.columns import ColumnSpec, key_columns
from streaming.declare.delivered import CHANGES
from streaming.declare.functions import described
from streaming.declare.keyed_checks import (
    check_connected,
    check_functions,
    check_keys_are_exact,
    check_outputs,
    check_retractions,
    check_rules,
    check_state,
)
from streaming.declare.operator import (
    CORRECTIONS,
    CURRENT,
    FAILED,
    FIRST,
    LATE,
    STATE,
    STATE_BOUNDED,
    OnError,
    Operator,
    TableSpec,
    check_dimension,
    corrections_of,
    published_columns,
    published_of,
)
from streaming.declare.pinned import Pinned
from streaming.declare.stream import Stream, check_some_streams

FAILED_COLUMNS = "error string, timer string, row string, state string"
"""The columns of a call that raised: the error, the timer that was due (null for a row), row and state as JSON."""

Order = Literal["arrival", "event"]
_AT = "Event time of the row, or the time for which the timer was set."


SESSION_START, REPLACES_FROM, REPLACES_UNTIL = "_session_start", "_replaces_from", "_replaces_until"
"""Columns of a correction: when the activity session begins, and for which results of the key its rows stand."""


def micros(text: str) -> int:
    """An interval such as `10 minutes` in microseconds, the unit of all times in a keyed function.

    Raises:
        DeclarationError: `text` is no interval.
    """
    return interval(text) // MICROSECOND


@dataclass(frozen=True)
class Keyed(Operator):
    """A function that is called for each row of a key, with state and timers of that key (as Flink's keyed process
    function).

    `on_row(key, row)` is handed the key (see `streaming.keyed.Key`: state fields as attributes, `emit`, `timer`, ...)
    and the row, with the stream's columns as attributes. `timers` maps the names of timers to functions `(key)`, called
    when one is due. Times are microseconds since the epoch, as whole numbers; `micros("1 hour")` is a length in them.

    `state` ("" for none), `result` and the side outputs in `sides` are Spark DDL, such as `previous double`. A table
    has the keys, `_at` (the event time of the row, or the time for which the timer was set) and what is emitted.

    `order="arrival"`: rows come in the order of the log, also late ones, for which `key.late` is true; before a row
    come the key's timers up to the row's stamp. `order="event"`: rows come by event time, each once the clock has
    passed it, and before a row come the timers up to its time; late rows are left out, and can be read as `late`.
    With `idle` they are corrected: all of a key's activity session that has some is computed again, late rows in their
    place, for which `key.late` is false, too. Without `idle` that would be the whole history of the key, so it is not.
    Of several streams, which have the keys in common, rows come by event time (of one time by stream, as they are named
    in `of`) once the clocks of all have passed them; `key.stream` is the name of the row's. A stream without rows holds
    up the others, unless its clock has `heartbeat_after`.

    Of a stream of which rows are taken back, order `event` with `idle` calls the function for the rows that stand, and
    corrects what one that is taken back late has made of its session. `retractions=True` calls it, in order `arrival`,
    for each row that is added and each that is taken back, in the order of the log: `key.change` is 1 or -1, and to
    undo what a row has done, in the state and in what was emitted, is up to the function. Any other function is refused
    such streams.

    `rules` are set by a control stream: `key.rules` has those in force for the row, by their keys, and `key.matching`
    those whose SQL condition (`ConditionRule`) is true of it. Of a history `key.rules` has the rows as they were at
    `key.at`.
    `idle` forgets a key once it had no row for that long in event time.

    `on_error="side"` sends a row for which the function raises to the side output `failed`, as if it had never come;
    with `"pause"` the function pauses, alone.

    Raise `version` when the function gives other results for the same rows: tables of another version are then refused
    until they are rebuilt, or `migrate` takes over: it is handed the state that a key has of an older declaration, as a
    dict by field, and the version that left it, and returns the new one, once for each key. Without it, new fields of
    the state begin empty, wider types take over what is there, and any other change of it is refused. The functions
    must depend on nothing but their arguments, and Spark's Python workers must be able to import them.

    `every` (an interval of processing time): how often a running pipeline steps it at most; left out, after each batch.

    Raises:
        DeclarationError: an unknown column, a name that is taken, a type that cannot be kept, or a function that
            cannot be found by its name.
    """

    name: str
    of: Stream | tuple[Stream, ...]
    by: tuple[str, ...]
    state: str
    result: str
    on_row: Callable[[Any, Any], None]
    timers: Mapping[str, Callable[[Any], None]] = field(default_factory=dict)
    order: Order = "arrival"
    idle: str | None = None
    retractions: bool = False
    sides: Mapping[str, str] = field(default_factory=dict)
    rules: Pinned | None = None
    on_error: OnError = "pause"
    version: int = 1
    migrate: Callable[[dict[str, Any], int], Mapping[str, Any]] | None = None
    description: str = ""
    every: str | None = None

    kind_name = "keyed function"
    corrected_name = "activity sessions"
    current_meaning = "results, with corrections in the place of those that they correct"

    def __post_init__(self) -> None:
        check_name(self.kind_name, self.name)
        settle(self, f"keyed function {self.name!r}")
        check_some_streams(f"of keyed function {self.name!r}", self.of)
        object.__setattr__(self, "by", tuple(name.strip("`") for name in self.by))
        check_number(f"version={self.version!r} of keyed function {self.name!r}", self.version, "version")
        check_functions(self.name, self.on_row, self.timers, self.migrate)
        check_connected(self.name, self.by, self.order, self.streams)
        check_keys_are_exact(f"by of keyed function {self.name!r}", self.by, self.streams[0].types)
        if self.rules is not None:
            check_rules(self.name, self.streams, self.rules.control)
            check_dimension(self, self.rules.history)
        check_retractions(self.name, self.order, self.retractions)
        check_state(self.name, self.by, self.state_schema, retractions=self.retractions)
        reserved = {
            FAILED,
            STATE,
            LATE,
            FIRST,
            CURRENT,
            CHANGES,
            CORRECTIONS,
            *map(corrections_of, (*self.sides, FAILED)),
        }
        check_outputs(
            self.name,
            self.by,
            {to: arrow_schema(ddl).names for to, ddl in {"": self.result, **self.sides}.items()},
            reserved,
        )
        for length in filter(None, (self.idle, self.every)):
            interval(length)

    @property
    def reads(self) -> tuple[Stream, ...]:
        """The streams, and then the control stream; that of a history is read by the history alone."""
        return self.streams if self.dimensions else (*self.streams, *self.pins)

    @property
    def dimensions(self) -> tuple[Operator, ...]:
        """The history, if its rows are looked up."""
        return () if self.rules is None or self.rules.history is None else (self.rules.history,)

    @property
    def streams(self) -> tuple[Stream, ...]:
        """The streams whose rows it is called for."""
        return self.of if isinstance(self.of, tuple) else (self.of,)

    @property
    def pins(self) -> tuple[Stream, ...]:
        """The control stream, if it has rules, or that of the history whose rows are looked up."""
        return () if self.rules is None else (self.rules.control,)

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        """The function's results, its side outputs, what failed where that is declared, and its state."""
        about = f": {self.description}" if self.description else ""
        return (
            TableSpec("", f"Results of keyed function {self.name}{about}", bounded=(AT,)),
            *(
                TableSpec(side, f"Side output {side} of keyed function {self.name}", bounded=(AT,))
                for side in self.sides
            ),
            *([self._failed_table] if self.diverts else []),
            TableSpec(
                STATE,
                f"State and timers of keyed function {self.name}",
                is_result=False,
                is_state=True,
                bounded=STATE_BOUNDED,
            ),
            *(self._corrections_table(to) for to in self._emitted if self.order == "event" and self.idle is not None),
        )

    @property
    def published(self) -> tuple[TableSpec, ...]:
        """Current results, where late rows are corrected."""
        return published_of(self) if self.corrected else ()

    def _corrections_table(self, to: str) -> TableSpec:
        of = f"side output {to} of keyed function" if to else "keyed function"
        description = f"Corrections of {of} {self.name}"
        suffix, is_result = corrections_of(to), not to
        return TableSpec(suffix, description, "backfill", is_result=is_result, keeps_history=True, bounded=(AT,))

    @property
    def _failed_table(self) -> TableSpec:
        return TableSpec(FAILED, f"Rows for which keyed function {self.name} raised", is_result=False, bounded=(AT,))

    @property
    def delivers(self) -> tuple[str, ...]:
        """Its rows, of whichever output, and where late rows are corrected what is current."""
        return ("rows", "current") if self.corrected else ("rows",)

    @property
    def late_policy(self) -> str:
        """Late rows that are left out of the first results are corrected or dropped."""
        return "correct" if self.corrected else "drop"

    @property
    def tells_late(self) -> bool:
        """Those that order `event` leaves out of the first results."""
        return self.order == "event"

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of a result that are a function of the rows: keys, time, what is emitted."""
        return (*self.by, AT, *self.output_schemas[""].names)

    @property
    def explained_by(self) -> tuple[str, ...]:
        """The key and the time: what is emitted at once is explained together."""
        return (*self.by, AT)

    def columns_of(self, suffix: str = "") -> tuple[ColumnSpec, ...]:
        """Keys, `_at`, what is emitted, and when it was written; none of its state, which is for the function."""
        emitted = self._emitted
        if suffix in emitted:
            return _keyed_columns(self.streams, self.by, emitted[suffix])
        if suffix == LATE and self.tells_late:
            return _late_columns(self.streams)
        if not self.corrected:
            return ()
        if suffix in (CURRENT, CHANGES):
            return published_columns(self, suffix)
        corrected = {corrections_of(to): ddl for to, ddl in emitted.items()}.get(suffix)
        return () if corrected is None else _corrected_columns(self.streams, self.by, corrected)

    @property
    def fingerprint(self) -> dict[str, Any]:
        """All but what says when results appear."""
        return {
            "stream": ", ".join(stream.name for stream in self.streams),
            "event time": ", ".join(stream.event_time for stream in self.streams),
            "rules": None if self.rules is None else self.rules.fingerprint,
            "by": list(self.by),
            "state": self.state,
            "result": self.result,
            "side output": dict(self.sides),
            "function": f"{described(self.on_row)} version {self.version}",
            "timer": {name: described(function) for name, function in self.timers.items()},
            "order": self.order,
            "idle": self.idle_micros,
            **({"retractions": True} if self.retractions else {}),
            # Tables from before it was called so have it by the older word.
            "on error": "fail" if self.on_error == "pause" else self.on_error,
        }

    @property
    def refuses_changes(self) -> str:
        """A row that it was called for, whose traces in the state nobody would undo."""
        if self.order == "arrival":
            way_out = "declare order='event' and idle, or retractions=True and undo what a row has done by key.change"
            return "" if self.retractions else f"in order 'arrival' it takes each row for one that stands; {way_out}"
        if self.idle is None:
            return (
                "without idle nothing is corrected, so that a row which is taken back late would count on; declare "
                "idle, the time without a row after which a key starts anew"
            )
        return ""

    def refuses(self, stream: Stream) -> str:
        """Also a control stream of which rows are taken back, by revisions or by hand."""
        if stream in self.pins and not self.dimensions:
            return (
                "a rule would stay in force whose row is taken back; let it look up a history: rules=Pinned(<history>)"
            )
        return super().refuses(stream)

    @property
    def reserved_suffixes(self) -> tuple[str, ...]:
        """Those of its tables, of its late rows, which are a read, and what is published of it."""
        outputs = (*self.sides, FAILED)
        return (*outputs, STATE, LATE, CURRENT, CHANGES, *map(corrections_of, ("", *outputs)))

    @property
    def condition(self) -> str | None:
        """The column of the control stream that has conditions over the rows; None where there is none."""
        return None if self.rules is None else self.rules.condition

    @property
    def idle_micros(self) -> int | None:
        """`idle` in microseconds; None where no key is forgotten."""
        return None if self.idle is None else micros(self.idle)

    @property
    def joins_clocks(self) -> bool:
        """Rows of several streams wait until all of their clocks have passed them."""
        return self.order == "event" and len(self.streams) > 1

    @cached_property
    def state_schema(self) -> pa.Schema:
        """The fields of a key's state, in Arrow's types."""
        return arrow_schema(self.state) if self.state.strip() else pa.schema([])

    @cached_property
    def output_schemas(self) -> dict[str, pa.Schema]:
        """The schema of what is emitted to each output, by the suffix of its table: "" for the results."""
        return {to: arrow_schema(ddl) for to, ddl in self._emitted.items()}

    @property
    def _emitted(self) -> dict[str, str]:
        """The Spark DDL of what is emitted to each output, by the suffix of its table: "" for the results."""
        failed = {FAILED: FAILED_COLUMNS} if self.diverts else {}
        return {"": self.result, **self.sides, **failed}


def through_column(streams: Sequence[Stream], stream: Stream) -> str:
    """The column of a correction that tells up to which batch of the stream rows are counted."""
    return "_through_batch" if len(streams) == 1 else f"_through_{stream.name}"


def _keyed_columns(streams: Sequence[Stream], by: tuple[str, ...], emitted: str) -> tuple[ColumnSpec, ...]:
    """Keys, what is emitted (as Spark DDL), and what the platform adds.

    A function is handed whole rows and keeps state of earlier ones, so that each value may follow from every column.
    """
    written = ColumnSpec(WRITTEN_AT, "When the row was written; a later step has a later one.", "timestamp")
    return _with_results(streams, by, emitted, written)


def _corrected_columns(streams: Sequence[Stream], by: tuple[str, ...], emitted: str) -> tuple[ColumnSpec, ...]:
    """The columns of corrections: keys, what is emitted (as Spark DDL), and what the platform adds."""
    return _with_results(
        streams,
        by,
        emitted,
        ColumnSpec(SESSION_START, "Time of the first row of the key's activity session.", "timestamp"),
        ColumnSpec(REPLACES_FROM, "From when on results of the key are replaced: its first late row.", "timestamp"),
        ColumnSpec(REPLACES_UNTIL, "Until when, exclusive: the session's end, or how far it is.", "timestamp"),
        ColumnSpec("_late_rows", "How many rows of the session came late.", "bigint"),
        ColumnSpec(RETRACTED, "Whether nothing stands for what is replaced, so that there are no values.", "boolean"),
        *(
            ColumnSpec(through_column(streams, each), f"Batch of {each.name} up to which rows are counted.", "bigint")
            for each in streams
        ),
        ColumnSpec("_corrected_at", "When the correction was computed.", "timestamp"),
    )


def _late_columns(streams: Sequence[Stream]) -> tuple[ColumnSpec, ...]:
    """The columns of late rows: those of all streams, null where a row's own has no such column."""
    named = dict.fromkeys(name for stream in streams for name in stream.columns)
    sign = ColumnSpec(SIGN, "1 for a row that is added, -1 for one that is taken back.", "int")
    signed = (sign,) if any(stream.takes_back for stream in streams) else ()
    return (
        ColumnSpec("_stream", "Whose row it is.", "string"),
        ColumnSpec(AT, "Event time.", "timestamp", tuple((each.name, each.event_time) for each in streams)),
        ColumnSpec(STAMP, "The stamp: the watermark that was in force when the row's batch was read.", "timestamp"),
        ColumnSpec(BATCH, "Number of the batch that brought the row, in its log's own sequence.", "bigint"),
        *signed,
        *(
            ColumnSpec(name, "As it came.", None, tuple((each.name, name) for each in streams if name in each.columns))
            for name in named
        ),
    )


def _with_results(
    streams: Sequence[Stream], by: tuple[str, ...], emitted: str, *added: ColumnSpec
) -> tuple[ColumnSpec, ...]:
    everything = tuple((stream.name, name) for stream in streams for name in stream.columns)
    return (
        *key_columns(streams[0], by),
        ColumnSpec(AT, _AT, "timestamp", everything),
        *(ColumnSpec(each.name, each.comment, each.type, everything) for each in columns_of(emitted)),
        *added,
        ColumnSpec(DAY, "Date of _at, UTC.", "date", everything),
    )
