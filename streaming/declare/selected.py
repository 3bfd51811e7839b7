"""The declaration of a selection: rows of streams, projected, filtered, exploded, split and brought together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Any

from streaming.base import (
    AT,
    BATCH,
    DAY,
    INGESTED_AT,
    ORIGIN,
    STAMP,
    DeclarationError,
    Types,
    check_column_name,
    check_condition,
    check_kind,
    check_name,
    check_value,
    columns_of,
    interval,
    names_in,
    settle,
)
from streaming.declare.columns import ColumnSpec, meaning_of, read_from_log
from streaming.declare.delivered import CHANGES
from streaming.declare.functions import RowFunction
from streaming.declare.meeting import what_is_lost
from streaming.declare.operator import (
    CURRENT,
    FAILED,
    OnError,
    Operator,
    TableSpec,
    published_columns,
    published_of,
    signed_columns,
)
from streaming.declare.side import Side, is_column
from streaming.declare.stream import Stream, check_some_streams

ELEMENT = "_element"
"""The column that numbers the rows which come of one row of the log, from 0 on."""

_IN_LOG = "Number of the batch that brought the row, in the log's own sequence."
_IN_TABLE = "Number of the step that brought the row, in the table's own sequence."
_TAKEN = ("current", "log", "clock", "rejected", "next")
"""The names of what is shown of any operator, and of the place where its tables are built anew."""


@dataclass(frozen=True)
class Selected(Operator):
    """The valid rows of the stream `of`, or of several, one by one: a derived stream without state.

    `select`, `where` and `explode` say what goes into its own table (see `Side`), and `sides` the same of further
    outputs, each a table with columns of its own; all are filled in one pass over the log. Their SQL may also read
    `_origin`, `_batch`, `_ingested_at` and `_watermark` (the stamp). Rows of several streams are brought together as
    they are, in no order and with copies; SQL then reads what all of them have.

    `function` is called for each row of its own table and says what becomes of it. A row is selected whether it came
    late or not. What a filter removes was judged and stays in the log; each commit counts it.

    `on_error="side"` sends a row for which SQL of any output, or the function, cannot be computed to the side output
    `failed`, with the error and the row as JSON; the other outputs are as if it had never come.

    Of a stream of which rows are taken back, what was made of a row is taken back with it, as the same selection finds
    it: a function must give the same for the same row. The table then has both, with `_change` and `_added`, and what
    is current are the rows that stand.

    Beside its columns a table has `_at` (event time), `_batch`, `_origin` (of several streams a field for each) and,
    where a row may become several, `_element`, their number.

    `every` (an interval of processing time): how often a running pipeline steps it at most; left out, after each batch.

    Raises:
        DeclarationError: an unknown column, a condition that is none, or a name that is taken.
    """

    name: str
    of: Stream | tuple[Stream, ...]
    select: tuple[str, ...] | Mapping[str, str] | None = None
    where: str | None = None
    explode: Mapping[str, str] | None = None
    sides: Mapping[str, Side] = field(default_factory=dict)
    function: RowFunction | None = None
    description: str = ""
    every: str | None = None
    on_error: OnError = "pause"

    kind_name = "selection"

    def __post_init__(self) -> None:
        check_name(self.kind_name, self.name)
        settle(self, f"selection {self.name!r}")
        check_some_streams(f"of selection {self.name!r}", self.of)
        _check_side_names(self.name, self.sides)
        if self.diverts and FAILED in self.sides:
            raise DeclarationError(
                f"selection {self.name!r} has a side output {FAILED!r} of its own beside on_error='side', which makes "
                "one of that name",
                "rename it.",
                operator=self.name,
            )
        self._check_streams()
        if self.function is not None and self.explode is not None:
            raise DeclarationError(
                f"selection {self.name!r} has both explode and a function",
                "let the function return several rows.",
                operator=self.name,
            )
        for column in columns_of(self.function.returns) if self.function is not None else ():
            check_column_name(column.name)
        if self.every is not None:
            interval(self.every)
        # Each output is checked as its types are told.
        _ = self.types
        self._check_columns()

    def _check_streams(self) -> None:
        names = [stream.name for stream in self.reads]
        for name in names:
            if names.count(name) > 1:
                raise DeclarationError(
                    f"selection {self.name!r} reads stream {name!r} twice",
                    "name each once.",
                    operator=self.name,
                    stream=name,
                )
        whole = [to for to, side in self.outputs.items() if side.select is None]
        others = {stream.name: stream.columns for stream in self.reads if stream.columns != self.reads[0].columns}
        if whole and others:
            (name, columns), *_ = others.items()
            raise DeclarationError(
                f"selection {self.name!r} takes all columns of several streams, but those of {names[0]!r} are "
                f"{', '.join(self.reads[0].columns)}, and those of {name!r} are {', '.join(columns)}",
                "select the columns that both have.",
                operator=self.name,
            )

    def _check_columns(self) -> None:
        """Refuse plain columns of several streams of types that do not go together; of expressions only Spark knows."""
        for to, side in self.outputs.items():
            for name, sql in side.selected(self.reads[0].columns).items():
                column = sql.strip("`")
                self.check_types(to, name, {stream.name: stream.types.get(column) for stream in self.reads})

    def check_types(self, suffix: str, name: str, types: Types) -> None:
        """Refuse a column of an output whose `types`, by stream, Spark brings to one in which a value may be lost.

        Raises:
            DeclarationError: with two of the types.
        """
        of = f"of side output {suffix!r} of selection {self.name!r}" if suffix else f"of selection {self.name!r}"
        for (one, type_), (other, other_type) in combinations(types.items(), 2):
            if (lost := what_is_lost(type_, other_type)) is not None:
                raise DeclarationError(
                    f"column {name!r} {of} is of type {type_} in {one!r}, and of type {other_type} in {other!r}; "
                    f"{lost}.",
                    f"Say which type is meant by a cast in `select`, such as {{{name!r}: 'cast({name} as string)'}}, "
                    "or derive a column of the same type in both.",
                    operator=self.name,
                    column=name,
                )

    @property
    def reads(self) -> tuple[Stream, ...]:
        """The streams."""
        return self.of if isinstance(self.of, tuple) else (self.of,)

    @property
    def outputs(self) -> dict[str, Side]:
        """The rows and columns that go into each of its tables, by the table's suffix: "" for its own."""
        return {"": Side(self.select, self.where, self.explode), **self.sides}

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        """Its own, one for each side output, and one for rows that cannot be computed where that is declared."""
        about, bounded = f": {self.description}" if self.description else "", (AT, BATCH)
        failed = TableSpec(FAILED, f"Rows that selection {self.name} cannot compute", is_result=False, bounded=bounded)
        return (
            TableSpec("", f"Rows of selection {self.name}{about}", bounded=bounded),
            *(
                TableSpec(to, f"Side output {to} of selection {self.name}", is_result=False, bounded=bounded)
                for to in self.sides
            ),
            *([failed] * self.diverts),
        )

    @property
    def fingerprint(self) -> dict[str, Any]:
        """All but what says when rows appear."""
        function = self.function
        return {
            "streams": [stream.name for stream in self.reads],
            "event time": [stream.event_time for stream in self.reads],
            "rows": self.outputs[""].fingerprint,
            "side output": {to: side.fingerprint for to, side in self.sides.items()},
            "function": None if function is None else f"{function.name} version {function.version}",
            "function's rows": None if function is None else function.returns,
            **self._diverted,
        }

    @property
    def signed(self) -> bool:
        """True where rows of a stream of it are taken back."""
        return any(stream.takes_back for stream in self.reads)

    @property
    def refuses_changes(self) -> str:
        """Columns that are others in a row that takes one back, and side outputs, of which nothing is current."""
        if self.sides:
            name, *_ = self.sides
            return f"nothing would tell which rows of side output {name!r} stand; declare a selection of its own for it"
        side = self.outputs[""]
        sql = (side.where, *(side.explode or {}).values(), *side.selected(self.reads[0].columns).values())
        for name in (ORIGIN, BATCH, INGESTED_AT, STAMP):
            if any(name in names_in(each) for each in sql if each is not None):
                return f"it reads {name!r}, which is another one in a row that takes it back; read the stream's columns"
        return ""

    @property
    def refuses_retractions(self) -> str:
        """Rows without a key are selected as they come."""
        return "a selection of a stream without a key takes each row for one that stands"

    @property
    def published(self) -> tuple[TableSpec, ...]:
        """The rows that stand, and each change of them, where some are taken back."""
        return published_of(self) if self.signed else ()

    @property
    def overlaid(self) -> bool:
        """True where rows are taken back: those that are current are not all that were added."""
        return self.signed

    @property
    def reserved_suffixes(self) -> tuple[str, ...]:
        """Those of its tables, and of what is published of it."""
        return (*super().reserved_suffixes, *((CURRENT, CHANGES) if self.signed else ()))

    @property
    def columns(self) -> tuple[str, ...]:
        """The selected columns; where rows are taken back also the event time, since it tells which one is."""
        return (*super().columns, AT) if self.signed else super().columns

    @property
    def delivers(self) -> tuple[str, ...]:
        """Its rows, of whichever output; where some are taken back, those that stand."""
        return ("current",) if self.signed else ("rows",)

    def columns_of(self, suffix: str = "") -> tuple[ColumnSpec, ...]:
        """The selected columns, then where each row is from."""
        added = tuple(signed_columns()) if self.signed else ()
        if suffix in (CURRENT, CHANGES) and self.signed:
            return published_columns(self, suffix)
        if suffix == FAILED and self.diverts:
            return (*_failed_columns(self.reads), *added)
        if suffix not in self.outputs:
            return ()
        side = self.outputs[suffix]
        if suffix == "" and self.function is not None:
            values = _function_columns(self.reads, side, self.function)
        else:
            values = side_columns(self.reads, side, self.types[suffix])
        return (*values, *_added_columns(len(self.reads), self.makes_many(suffix)), *added)

    @property
    def filters(self) -> tuple[str, ...]:
        return tuple(to for to, side in self.outputs.items() if side.where is not None)

    def makes_many(self, suffix: str) -> bool:
        """True if a row of the log may become several in this output."""
        explodes = suffix in self.outputs and self.outputs[suffix].explode is not None
        return explodes or (suffix == "" and self.function is not None)

    @cached_property
    def types(self) -> dict[str, dict[str, str | None]]:
        """The Spark type of each column that is selected, by output; None where only Spark knows it."""
        columns = {name: None for name in self.reads[0].types if all(name in stream.types for stream in self.reads)}
        types: Types = {name: _only(stream.types[name] for stream in self.reads) for name in columns}
        added: Types = {
            ORIGIN: self.reads[0].origin if len(self.reads) == 1 else None,
            "_batch": "bigint",
            INGESTED_AT: "timestamp",
            "_watermark": "timestamp",
        }
        return {
            to: check_side(f"{f'side output {to!r} of ' if to else ''}selection {self.name!r}", side, types, added)
            for to, side in self.outputs.items()
        }


def _only(types: Any) -> str | None:
    """The type that all of them are; None where they differ."""
    kinds = set(types)
    return kinds.pop() if len(kinds) == 1 else None


def side_columns(streams: Sequence[Stream], side: Side, types: Mapping[str, str | None]) -> Iterator[ColumnSpec]:
    """The selected columns of an output, with their `types`."""
    for name, sql in side.selected(streams[0].columns).items():
        of = tuple(one for stream in streams for one in _read(stream, side, sql))
        meaning = meaning_of(streams[0], name) if is_column(sql, name) else f"`{sql}`."
        yield ColumnSpec(name, meaning, types[name], of)


def _function_columns(streams: Sequence[Stream], side: Side, function: RowFunction) -> Iterator[ColumnSpec]:
    """The columns a function returns: it is handed whole rows, so that each may follow from all that is selected."""
    selected = side.selected(streams[0].columns).values()
    of = tuple(dict.fromkeys(one for stream in streams for sql in selected for one in _read(stream, side, sql)))
    for column in columns_of(function.returns):
        yield ColumnSpec(column.name, f"Result of `{function.name}`. {column.comment}".strip(), column.type, of)


def _failed_columns(streams: Sequence[Stream]) -> tuple[ColumnSpec, ...]:
    """Why a row cannot be computed, the row, and where it is from."""
    columns = tuple((stream.name, name) for stream in streams for name in stream.columns)
    return (
        ColumnSpec("error", "What cannot be computed of the row, or what the function raised.", "string"),
        ColumnSpec("row", "The columns of the stream, as JSON.", "string", columns),
        *_added_columns(len(streams), makes_many=False),
    )


def _added_columns(streams: int, makes_many: bool) -> Iterator[ColumnSpec]:
    """Where a row is from, of so many streams; `makes_many`: a row of the log may become several."""
    yield ColumnSpec("_at", "Event time of the row.", "timestamp")
    yield ColumnSpec("_batch", _IN_LOG if streams == 1 else _IN_TABLE, "bigint")
    yield ColumnSpec(ORIGIN, "Where the row's source had it.", "struct")
    if makes_many:
        yield ColumnSpec(ELEMENT, "Number of the row among those that come of one row of the log.", "int")
    yield ColumnSpec("_written_at", "When the row was written.", "timestamp")
    yield ColumnSpec(DAY, "Date of the event time, UTC.", "date")


def _read(stream: Stream, side: Side, sql: str) -> tuple[tuple[str, str], ...]:
    """The columns of the stream's log that follow from SQL which may read an element of an exploded array."""
    element = (stream.name, side.element)
    read = read_from_log(stream, sql)
    if side.explode is None or element not in read:
        return read
    array = read_from_log(stream, *side.explode.values())
    return tuple(dict.fromkeys((*array, *(one for one in read if one != element))))


def _check_side_names(name: str, sides: Mapping[str, Side]) -> None:
    """Refuse a side output with a name that means something else.

    Raises:
        DeclarationError: with the names that are taken.
    """
    for side in sides:
        check_name("side output", side)
        if side in _TAKEN:
            raise DeclarationError(
                f"side output {side!r} of selection {name!r} has a name that is taken ({', '.join(_TAKEN)})",
                "rename it.",
                operator=name,
            )


def check_side(what: str, side: Side, types: Types, added: Types) -> dict[str, str | None]:
    """Refuse an output that reads what there is not; returns the Spark types of its columns, None where not known.

    `types` are the columns of the stream, `added` those of the log that SQL may read as well.

    Raises:
        DeclarationError: with the expression, and what to write.
    """
    readable: dict[str, str | None] = {**types, **added, **_exploded(what, side, {**types, **added})}
    if side.where is not None:
        check_condition(f"where of {what}", side.where, readable)
    settle(side, what)
    if side.select is not None and not side.select:
        raise DeclarationError(f"select of {what} names no column", "leave it out to keep all.")
    selected = side.selected(tuple(types))
    for name in selected:
        check_column_name(name)
    lower = [name.lower() for name in (side.select or ())]
    if repeated := sorted({name for name in lower if lower.count(name) > 1}):
        raise DeclarationError(f"select of {what} has {', '.join(map(repr, repeated))} twice", "name each column once.")
    return {name: check_value(f"column {name!r} of {what}", sql, readable) for name, sql in selected.items()}


def _exploded(what: str, side: Side, readable: Types) -> dict[str, str | None]:
    """The name of an element, with its type."""
    if side.explode is None:
        return {}
    advice = "a dict of one name and the SQL of an array, such as {'word': \"split(text, ' ')\"}"
    if len(side.explode) != 1:
        raise DeclarationError(f"explode of {what} has {len(side.explode)} entries", f"write {advice}.")
    ((name, sql),) = side.explode.items()
    check_column_name(name)
    if name.lower() in {column.lower() for column in readable}:
        raise DeclarationError(
            f"explode of {what} names its elements {name!r}, which is a column already", "rename it."
        )
    check_kind(f"explode of {what}", sql, readable, "array", advice)
    array = check_value(f"explode of {what}", sql, readable) or ""
    return {name: array[len("array<") : -1] if array.startswith("array<") else None}
