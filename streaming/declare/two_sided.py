"""Two streams whose rows meet in a window: what window joins and co-groups have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from streaming.base import check_name, interval
from streaming.declare.columns import ColumnSpec
from streaming.declare.failed_columns import failed_of_sides
from streaming.declare.input_side import InputSide
from streaming.declare.join_keys import keys_of
from streaming.declare.on_error import OnError, check_on_error
from streaming.declare.operator import Operator, TableSpec
from streaming.declare.stream import Stream
from streaming.declare.suffixes import CORRECTIONS, CURRENT, FAILED, LATE, STATE
from streaming.declare.two_sided_checks import check_late, check_meeting, check_result_names, check_two_sided_types
from streaming.declare.two_sided_columns import two_sided_columns
from streaming.windows import Window

LateRows = Literal["correct", "drop"]
"""`correct`: late rows wait for the scheduled correction of their window's day. `drop`: they change no result."""


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
        check_two_sided_types(self.kind_name, vars(self))
        check_on_error(self.kind_name, self.name, self.on_error)
        object.__setattr__(self, "on", self.sides_on)
        check_meeting(f"of {self.kind_name} {self.name!r}", self.sides_on, self.left, self.right, self.window)
        check_late(f"{self.kind_name} {self.name!r}", self.late)
        if self.every is not None:
            interval(self.every)

    def _check_values(self) -> None:
        check_result_names(f"{self.kind_name} {self.name!r}", self.values, self.identity)

    @property
    @abstractmethod
    def values(self) -> tuple[str, ...]:
        """The columns that are computed."""

    @abstractmethod
    def value_columns(self) -> tuple[ColumnSpec, ...]:
        """What they mean, and which columns of the logs they are computed from."""

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
        """What brings rows together; a kind adds what it makes of them."""
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
        return two_sided_columns(self.sides, self.window, self.value_columns(), suffix)

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
