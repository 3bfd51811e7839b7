"""Two streams whose rows meet in a window: what window joins and co-groups have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from streaming.base import (
    DAY,
    EVENT_TIME,
    DeclarationError,
    check_column_name,
    check_name,
    check_names,
    check_type,
    interval,
)
from streaming.declare.columns import ColumnSpec, failed_of_sides, log_columns, read_from_log
from streaming.declare.join_keys import InputSide, check_keys_there, keys_of
from streaming.declare.operator import (
    CORRECTIONS,
    CURRENT,
    FAILED,
    LATE,
    STATE,
    OnError,
    Operator,
    TableSpec,
    check_on_error,
)
from streaming.declare.stream import Stream
from streaming.windows import Window

LateRows = Literal["correct", "drop"]
"""`correct`: late rows wait for the scheduled correction of their window's day. `drop`: they change no result."""
_POLICIES = ("correct", "drop")
_ADDED = {
    "": (ColumnSpec("_written_at", "When the row was written.", "timestamp"),),
    CORRECTIONS: (
        ColumnSpec("_late_rows", "How many rows of the window came late, on either side.", "bigint"),
        ColumnSpec(
            "_retracted", "Whether what was published of the window is void, and nothing stands for it.", "boolean"
        ),
        ColumnSpec("_through_left", "The batch of the left log up to which rows are counted.", "bigint"),
        ColumnSpec("_through_right", "The batch of the right log up to which rows are counted.", "bigint"),
        ColumnSpec("_corrected_at", "When the correction was computed.", "timestamp"),
    ),
    CURRENT: (ColumnSpec("_corrected", "Whether a correction stands for the first results.", "boolean"),),
}


@dataclass(frozen=True)
class TwoSided(Operator):
    """The rows of two streams that have the same key, brought together window by window.

    `on` names the keys, such as `("id",)`, or maps the left stream's to the right one's where they are called
    differently; results have them under the left one's names. Both sides may be the same stream.

    With `on_error="side"` pairs for which a column cannot be computed, windows for which a function raises, and rows of
    which the window cannot be computed have no results; the side output `failed` tells them.
    """

    name: str
    left: Stream
    right: Stream
    on: tuple[str, ...] | Mapping[str, str]
    window: Window
    late: LateRows = field(default="correct", kw_only=True)
    description: str = field(default="", kw_only=True)
    every: str | None = field(default=None, kw_only=True)
    on_error: OnError = field(default="pause", kw_only=True)

    kind_name = "two-sided view"

    def _check_inputs(self) -> None:
        check_name(self.kind_name, self.name)
        _check_two_sided_types(self.kind_name, vars(self))
        check_on_error(self.kind_name, self.name, self.on_error)
        object.__setattr__(self, "on", self.sides_on)
        _check_meeting(f"of {self.kind_name} {self.name!r}", self.sides_on, self.left, self.right, self.window)
        _check_late(f"{self.kind_name} {self.name!r}", self.late)
        if self.every is not None:
            interval(self.every)

    def _check_values(self) -> None:
        _check_result_names(f"{self.kind_name} {self.name!r}", self.values, self.identity)

    @property
    @abstractmethod
    def values(self) -> tuple[str, ...]:
        """The columns that are computed."""

    @abstractmethod
    def value_columns(self) -> tuple[ColumnSpec, ...]:
        """The computed columns: what they mean, and which columns of the logs they are computed from."""

    @cached_property
    def sides_on(self) -> Mapping[str, str]:
        """The keys of the left stream, each with that of the right one."""
        return keys_of(f"of {self.kind_name} {self.name!r}", self.on)

    @property
    def sides(self) -> tuple[InputSide, InputSide]:
        """Left, then right."""
        keys = self.sides_on
        return InputSide("left", self.left, tuple(keys)), InputSide("right", self.right, tuple(keys.values()))

    @property
    def reads(self) -> tuple[Stream, ...]:
        """The two streams, or the one that is both."""
        return tuple(dict.fromkeys((self.left, self.right)))

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        """First results, open sessions where windows merge, and corrections where they are declared."""
        about = f": {self.description}" if self.description else ""
        state = TableSpec(STATE, f"Open sessions of {self.kind_name} {self.name}", is_result=False, is_state=True)
        corrections = TableSpec(
            CORRECTIONS, f"Corrections of {self.kind_name} {self.name}", written_by="backfill", keeps_history=True
        )
        return (
            TableSpec("", f"First results of {self.kind_name} {self.name}{about}"),
            *([state] if self.window.merging else []),
            *([corrections] if self.late == "correct" else []),
        )

    @property
    def tells_late(self) -> bool:
        """Those of either side."""
        return True

    @property
    def joins_clocks(self) -> bool:
        """Those of both streams."""
        return True

    @property
    def delivers(self) -> tuple[str, ...]:
        """Its first results, or what is current of it."""
        return ("first", "current")

    @property
    def reserved_suffixes(self) -> tuple[str, ...]:
        """Those of its tables, and of its late and failed rows and current results, which are reads."""
        return (CORRECTIONS, LATE, STATE, CURRENT, *([FAILED] if self.diverts else []))

    @property
    def fingerprint(self) -> dict[str, Any]:
        """The facts that bring rows together; a kind adds what it makes of them."""
        return {
            "left": self.left.name,
            "right": self.right.name,
            "event time": [self.left.event_time, self.right.event_time],
            "on": dict(self.sides_on),
            "window": self.window.fingerprint,
            **self._diverted,
        }

    def columns_of(self, suffix: str = "") -> tuple[ColumnSpec, ...]:
        """Keys, window, values, then what the table with this suffix adds."""
        if suffix == FAILED and self.diverts:
            return tuple(failed_of_sides(self.reads, windowed=True))
        return _two_sided_columns(self.sides, self.window, self.value_columns(), suffix)

    @property
    def by(self) -> tuple[str, ...]:
        """The key columns of a result."""
        return tuple(self.sides_on)

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that tell to which key and window a result belongs; one of these may have several results."""
        return (*self.by, "window_start", "window_end")

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of a result that are a function of the rows: identity, then values."""
        return (*self.identity, *self.values)


def _check_two_sided_types(kind: str, given: Mapping[str, object]) -> None:
    """Refuse a value of another type than is asked for; `given` holds the fields of a declaration by name.

    Raises:
        DeclarationError: with the value, and what to write.
    """
    of = f"of {kind} {given['name']!r}"
    for side in ("left", "right"):
        check_type(f"{side}= {of}", given[side], Stream, "the stream whose rows come in on that side")
    check_type(f"window {of}", given["window"], Window, "a window, such as Tumbling('1 hour')")


def _check_meeting(of: str, on: Mapping[str, str], left: Stream, right: Stream, window: Window) -> None:
    """Refuse keys that a stream does not have or that cannot be equal, and a window that reads what a stream has not.

    Raises:
        DeclarationError: with the columns that there are.
    """
    check_keys_there(of, on, left, right)
    for name in on:
        if name in ("left", "right"):
            raise DeclarationError(
                f"on {of} has the key {name!r}, under which late rows are shown with all their columns; derive a "
                f"column of another name in stream {left.name!r}, such as derived={{'{name}_key': '{name}'}}."
            )
    for side, stream in (("left", left), ("right", right)):
        for expression in window.expressions:
            check_names(f"the window {of}, at the {side},", expression, stream.columns)
    for ours, theirs in on.items():
        types = left.types[ours], right.types[theirs]
        if None not in types and types[0] != types[1]:
            raise DeclarationError(
                f"on {of} compares {ours!r} of stream {left.name!r}, which is {types[0]}, with {theirs!r} of stream "
                f"{right.name!r}, which is {types[1]}; derive a column of the same type in one of the streams, such as "
                f"derived={{'{theirs}_key': 'cast({theirs} as {types[0]})'}}."
            )


def _check_late(what: str, late: object) -> None:
    """Refuse a policy for late rows that there is not.

    Raises:
        DeclarationError: with those there are.
    """
    if late not in _POLICIES:
        why = " Only a view over one stream is updated by the stream process." if late == "update" else ""
        raise DeclarationError(
            f"late={late!r} of {what} is no policy; use one of: {', '.join(map(repr, _POLICIES))}.{why}"
        )


def _check_result_names(what: str, values: Iterable[str], identity: tuple[str, ...]) -> None:
    """Refuse the name of a result that is taken or comes twice.

    Raises:
        DeclarationError: with the names that are taken.
    """
    names = {name.lower() for name in identity}
    for name in values:
        check_column_name(name)
        if name.lower() in names:
            raise DeclarationError(
                f"result {name!r} of {what} has the name of a key, a window column or another result "
                f"({', '.join(identity)}); rename it."
            )
        names.add(name.lower())


def _two_sided_columns(
    sides: tuple[InputSide, InputSide], window: Window, values: tuple[ColumnSpec, ...], suffix: str
) -> tuple[ColumnSpec, ...]:
    """The columns of the table with this suffix; none where there is no such table for people."""
    bounds = tuple(one for side in sides for one in read_from_log(side.stream, EVENT_TIME, *window.expressions))
    bounds = tuple(dict.fromkeys(bounds))
    start = ColumnSpec("window_start", "Start of the window, inclusive.", "timestamp", bounds)
    end = ColumnSpec("window_end", "End of the window, exclusive.", "timestamp", bounds)
    if suffix == LATE:
        return (*_keys(sides), start, end, *_late(sides))
    if suffix not in _ADDED:
        return ()
    day = ColumnSpec(DAY, "Date of the window's start, UTC.", "date", bounds)
    return (*_keys(sides), start, end, *values, *_ADDED[suffix], day)


def _keys(sides: tuple[InputSide, InputSide]) -> Iterator[ColumnSpec]:
    left, right = sides
    meanings = {spec.name: spec.meaning for spec in log_columns(left.stream)}
    for ours, theirs in zip(left.keys, right.keys, strict=True):
        of = tuple(dict.fromkeys(((left.stream.name, ours), (right.stream.name, theirs))))
        yield ColumnSpec(ours, f"Key. {meanings.get(ours, '')}".strip(), left.stream.types.get(ours), of)


def _late(sides: tuple[InputSide, InputSide]) -> Iterator[ColumnSpec]:
    yield ColumnSpec("_side", "Which side the row came in on: left or right.", "string")
    stamp = "The stamp: the watermark of its log that was in force when the row's batch was read."
    yield ColumnSpec("_watermark", stamp, "timestamp")
    yield ColumnSpec("_batch", "Number of the batch that brought the row, in its log's own sequence.", "bigint")
    for side in sides:
        of = tuple((side.stream.name, name) for name in side.stream.columns)
        yield ColumnSpec(side.name, f"The row, where it came in on the {side.name}.", None, of)
