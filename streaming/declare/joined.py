"""The declaration of a join of two streams within bounds of time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any, Literal

from streaming.base import (
    ORIGIN,
    FrozenMapping,
    check_column_name,
    check_condition,
    check_name,
    check_value,
    interval,
    signed_interval,
)
from streaming.declare.columns import ColumnSpec
from streaming.declare.failed_columns import failed_of_sides
from streaming.declare.input_side import JoinKind, SideName
from streaming.declare.join_keys import check_keys_meet_exactly, check_keys_there, keys_of
from streaming.declare.joined_checks import (
    check_between,
    check_joined_types,
    check_selected_names,
    check_sides,
    check_words,
)
from streaming.declare.joined_columns import (
    LEFT_AT,
    RIGHT_AT,
    PairColumns,
    added_columns,
    late_columns,
    selected_columns,
)
from streaming.declare.on_error import OnError, check_on_error
from streaming.declare.operator import Operator, TableSpec
from streaming.declare.side import Side
from streaming.declare.stream import Stream
from streaming.declare.suffixes import CURRENT, FAILED, LATE, UNMATCHED


@dataclass(frozen=True)
class Joined(Operator):
    """Pairs of valid rows of `left` and `right` with equal keys whose event times lie within bounds of each other.

    `on` names the keys, such as `("id",)`, or maps the left stream's to the right one's where they are called
    differently; a row whose key is null never joins. `between=("-1 hour", "15 minutes")`: the right row is at most an
    hour earlier and at most 15 minutes later than the left one, both included. `where` is a further SQL condition on a
    pair. A stream may be joined with itself: each row then meets itself and every other one twice, unless `where` says
    which way round.

    `select` names columns, or maps names to SQL over a pair; left out, all of both. A key has the left one's name, and
    a column whose name both streams have is `left_<name>` or `right_<name>`. SQL may also read `_left_at` and
    `_right_at`, the event times.

    A pair comes with the row that arrives second, however late. `late="drop"` leaves out rows that are late by the
    clock of their stream. `kind="left"` also tells, in the table `<name>_unmatched`, of left rows that have no pair
    once the clocks of both streams have passed the last instant at which a right row could be their partner in time;
    `"outer"` of right ones too. A pair that comes afterwards takes its rows out of what is current.

    `on_error="side"` makes no pair of two rows for which `where`, or a column that is selected, cannot be computed, and
    tells of no row alone for which it cannot; the side output `failed` tells them.

    Raises:
        DeclarationError: an unknown column, keys that cannot be compared, bounds in the wrong order, or names that
            clash.
    """

    name: str
    left: Stream
    right: Stream
    on: tuple[str, ...] | Mapping[str, str]
    between: tuple[str, str]
    kind: JoinKind = "inner"
    select: tuple[str, ...] | Mapping[str, str] | None = None
    where: str | None = None
    late: Literal["join", "drop"] = "join"
    description: str = ""
    every: str | None = None
    on_error: OnError = "pause"

    kind_name = "join"

    def __post_init__(self) -> None:
        check_name(self.kind_name, self.name)
        check_joined_types(vars(self))
        check_on_error(self.kind_name, self.name, self.on_error)
        check_words(self.name, self.kind, self.late)
        check_sides(self.name, self.left, self.right)
        object.__setattr__(self, "on", FrozenMapping(dict(self.keys)))
        check_keys_there(f"of join {self.name!r}", dict(self.keys), self.left, self.right)
        check_keys_meet_exactly(f"of join {self.name!r}", dict(self.keys), self.left, self.right)
        check_between(self.name, self.between)
        if isinstance(self.select, Mapping):
            object.__setattr__(self, "select", FrozenMapping(self.select))
        if self.every is not None:
            interval(self.every)
        check_selected_names(f"of join {self.name!r}", self.select, self.pair)
        if self.where is not None:
            check_condition(f"where of join {self.name!r}", self.where, self.pair.types)
        _ = self.types

    @cached_property
    def keys(self) -> tuple[tuple[str, str], ...]:
        """The key columns, each as the left and the right stream call it."""
        return tuple(keys_of(f"of join {self.name!r}", self.on).items())

    @cached_property
    def pair(self) -> PairColumns:
        """The columns of a pair."""
        return PairColumns(self.left, self.right, self.keys)

    @property
    def lower(self) -> timedelta:
        """How much later than the left row the right one is at least; below zero for earlier."""
        return signed_interval(self.between[0])

    @property
    def upper(self) -> timedelta:
        """How much later it is at most."""
        return signed_interval(self.between[1])

    @property
    def outer_sides(self) -> tuple[SideName, ...]:
        """The sides whose rows are told of also without a partner."""
        match self.kind:
            case "inner":
                return ()
            case "left":
                return ("left",)
        return ("left", "right")

    @property
    def reads(self) -> tuple[Stream, ...]:
        """The streams; one where it is joined with itself."""
        return (self.left,) if self.left == self.right else (self.left, self.right)

    @property
    def tells_late(self) -> bool:
        """Those of either stream, whether they join or not."""
        return True

    @property
    def joins_clocks(self) -> bool:
        """Those of both streams."""
        return True

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        """Its pairs, and the rows that had none in time."""
        about = f": {self.description}" if self.description else ""
        pairs = TableSpec("", f"Pairs of join {self.name}{about}")
        unmatched = TableSpec(UNMATCHED, f"Rows of join {self.name} that had no partner in time")
        return (pairs, unmatched) if self.outer_sides else (pairs,)

    @property
    def reserved_suffixes(self) -> tuple[str, ...]:
        """Also of a join that tells of pairs alone, so that its kind can be changed."""
        return (UNMATCHED, LATE, CURRENT, *([FAILED] if self.diverts else []))

    @property
    def selected(self) -> Mapping[str, str]:
        """The columns of a result, each with its SQL."""
        return Side(self.select).selected(tuple(self.pair.selectable))

    @cached_property
    def types(self) -> dict[str, str | None]:
        """The Spark type of each column of a result; None where only Spark knows it."""
        for name in self.selected:
            check_column_name(name)
        return {
            name: check_value(f"column {name!r} of join {self.name!r}", sql, self.pair.types)
            for name, sql in self.selected.items()
        }

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of a result that are a function of its rows: what is selected, event times, stamp and origins."""
        return (*self.selected, LEFT_AT, RIGHT_AT, "_at", "_watermark", ORIGIN)

    @property
    def fingerprint(self) -> dict[str, Any]:
        """All but what says when results appear."""
        return {
            "streams": [self.left.name, self.right.name],
            "event time": [self.left.event_time, self.right.event_time],
            "keys": [left if left == right else f"{left} = {right}" for left, right in self.keys],
            "between": list(self.between),
            "kind": self.kind,
            "late rows": self.late,
            "where": self.where,
            "columns": Side(self.select).fingerprint,
            **self._diverted,
        }

    @property
    def delivers(self) -> tuple[str, ...]:
        """Its pairs, or with an output the rows without one; what is current where pairs void rows that were told."""
        return ("rows", "current") if self.outer_sides else ("rows",)

    def columns_of(self, suffix: str = "") -> tuple[ColumnSpec, ...]:
        """What is selected, then which rows it is of; rows without a partner have null in place of one."""
        if suffix == LATE:
            return tuple(late_columns(self.reads))
        if suffix == FAILED and self.diverts:
            return tuple(failed_of_sides(self.reads, windowed=False))
        if suffix not in ("", UNMATCHED, CURRENT) or (suffix and not self.outer_sides):
            return ()
        return (*selected_columns(self.pair, self.selected, self.types), *added_columns(len(self.reads)))
