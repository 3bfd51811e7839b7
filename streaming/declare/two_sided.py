"""Two streams whose rows meet in a window: what window joins and co-groups have in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from streaming.base import (
    SIGN,
    DeclarationError,
    check_choice,
    check_column_name,
    check_name,
    check_names,
    interval,
    settle,
)
from streaming.declare.columns import ColumnSpec, failed_of_sides, meaning_of
from streaming.declare.delivered import CHANGES
from streaming.declare.join_keys import InputSide, check_keys_there, keys_of
from streaming.declare.operator import (
    CORRECTIONS,
    CURRENT,
    FAILED,
    LATE,
    STATE,
    OnError,
    TableSpec,
)
from streaming.declare.over_windows import OverWindows
from streaming.declare.stream import Stream
from streaming.windows import Window

LateRows = Literal["correct", "drop"]
"""`correct`: late rows wait for the scheduled correction of their window's day. `drop`: they change no result."""
_POLICIES = ("correct", "drop")


@dataclass(frozen=True)
class TwoSided(OverWindows):
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
        _check_late(f"{self.kind_name} {self.name!r}", self.late)
        settle(self, f"{self.kind_name} {self.name!r}")
        object.__setattr__(self, "on", self.sides_on)
        _check_meeting(f"of {self.kind_name} {self.name!r}", self.sides_on, self.left, self.right, self.window)
        if self.every is not None:
            interval(self.every)

    def _check_values(self) -> None:
        _check_result_names(f"{self.kind_name} {self.name!r}", self.values, self.identity)

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
    def own_tables(self) -> tuple[TableSpec, ...]:
        """Open sessions, where windows merge."""
        state = TableSpec(STATE, f"Open sessions of {self.kind_name} {self.name}", is_result=False, is_state=True)
        return (state,) if self.window.merging else ()

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
        """Those of its tables, and of its late and failed rows, which are reads, and what is published of it."""
        return (CORRECTIONS, LATE, STATE, CURRENT, CHANGES, *([FAILED] if self.diverts else []))

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
        if suffix == LATE:
            start, end, _ = self._bounds
            return (*self.key_columns(), start, end, *_late(self.sides, signed=any(of.takes_back for of in self.reads)))
        return super().columns_of(suffix)

    def key_columns(self) -> Iterator[ColumnSpec]:
        """Those of the left stream, with those of the right one that they are equal to."""
        for ours, theirs in self.sides_on.items():
            of = tuple(dict.fromkeys(((self.left.name, ours), (self.right.name, theirs))))
            yield ColumnSpec(ours, f"Key. {meaning_of(self.left, ours)}".strip(), self.left.types.get(ours), of)

    @property
    def by(self) -> tuple[str, ...]:
        """The key columns of a result."""
        return tuple(self.sides_on)

    @property
    def gives_many(self) -> bool:
        """A pair each, or whatever a function gives."""
        return True

    @property
    def counted_through(self) -> Mapping[str, Stream]:
        """A column for each side."""
        return {f"_through_{side.name}": side.stream for side in self.sides}


def _check_meeting(of: str, on: Mapping[str, str], left: Stream, right: Stream, window: Window) -> None:
    """Refuse keys that a stream does not have or that cannot be equal, and a window that reads what a stream has not.

    Raises:
        DeclarationError: with the columns that there are.
    """
    check_keys_there(of, on, left, right)
    for name in on:
        if name in ("left", "right"):
            raise DeclarationError(
                f"on {of} has the key {name!r}, under which late rows are shown with all their columns",
                f"derive a column of another name in stream {left.name!r}, such as derived={{'{name}_key': '{name}'}}.",
                stream=left.name,
            )
    for side, stream in (("left", left), ("right", right)):
        for expression in window.expressions:
            check_names(f"the window {of}, at the {side},", expression, stream.columns)
    for ours, theirs in on.items():
        types = left.types[ours], right.types[theirs]
        if None not in types and types[0] != types[1]:
            raise DeclarationError(
                f"on {of} compares {ours!r} of stream {left.name!r}, which is {types[0]}, with {theirs!r} of stream "
                f"{right.name!r}, which is {types[1]}",
                f"derive a column of the same type in one of the streams, such as "
                f"derived={{'{theirs}_key': 'cast({theirs} as {types[0]})'}}.",
                stream=left.name,
            )


def _check_late(what: str, late: object) -> None:
    """Refuse a policy for late rows that there is not.

    Raises:
        DeclarationError: with those there are.
    """
    why = "Only a view over one stream is updated by the stream process." if late == "update" else ""
    check_choice("late", late, f"of {what}", _POLICIES, why)


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
                f"({', '.join(identity)})",
                "rename it.",
            )
        names.add(name.lower())


def _late(sides: tuple[InputSide, InputSide], *, signed: bool) -> Iterator[ColumnSpec]:
    yield ColumnSpec("_side", "Which side the row came in on: left or right.", "string")
    if signed:
        yield ColumnSpec(SIGN, "1 for a row that is added, -1 for one that is taken back.", "int")
    stamp = "The stamp: the watermark of its log that was in force when the row's batch was read."
    yield ColumnSpec("_watermark", stamp, "timestamp")
    yield ColumnSpec("_batch", "Number of the batch that brought the row, in its log's own sequence.", "bigint")
    for side in sides:
        of = tuple((side.stream.name, name) for name in side.stream.columns)
        yield ColumnSpec(side.name, f"The row, where it came in on the {side.name}.", None, of)
