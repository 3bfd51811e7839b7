"""The declaration of a window join: the pairs of rows of two streams that share a key and a window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from streaming.base import check_value
from streaming.declare.columns import ColumnSpec
from streaming.declare.join_keys import JoinKind
from streaming.declare.joined import PairColumns, check_join_kind, check_selected_names, selected_columns
from streaming.declare.side import Side
from streaming.declare.two_sided import TwoSided


@dataclass(frozen=True)
class WindowJoined(TwoSided):
    """Every row of `left` with every row of `right` that has the same key and lies in the same window.

    A result is a pair, once for each window that holds both rows. `kind="left"` also gives a row of the left side
    whose window has none on the right, with nulls in its place, and `"outer"` those of either side. A key with a null
    equals no other, as in SQL. Semantics as Flink's `join(...).where(...).equalTo(...).window(...)`.

    `select` names columns, or maps names to SQL over a pair; left out, all of both. A key has the left one's name, and
    a column whose name both streams have is `left_<name>` or `right_<name>`. SQL may also read `_left_at` and
    `_right_at`, the event times.

    **On time.** A row is late for a window by the clock of its own log: the window's end is not after the row's stamp
    (for sessions: its event time is before it). A pair is on time if both of its rows are, and a row without a partner
    is published if it is on time and none that is on time matches it. So what is published depends on rows and stamps
    alone, however the logs are cut into batches and whichever is ahead. It is published once the clocks of both logs
    have passed the window's end. With `late="correct"` a window with late rows is then computed from all its rows, by
    the correction of its day, which replaces all that was published of the key and window.

    `every` (an interval of processing time): how often a running pipeline steps it at most.

    Raises:
        DeclarationError: an unknown column, keys that cannot be equal, a name that is taken, or a policy that there is
            not.
    """

    select: tuple[str, ...] | Mapping[str, str] | None = None
    kind: JoinKind = "inner"

    kind_name = "window join"

    def __post_init__(self) -> None:
        of = f"of window join {self.name!r}"
        check_join_kind(of, self.kind)
        self._check_inputs()
        check_selected_names(of, self.select, self.pair)
        self._check_values()
        # Each expression is checked as its type is told.
        _ = self.types

    @cached_property
    def pair(self) -> PairColumns:
        """The columns of a pair."""
        return PairColumns(self.left, self.right, tuple(self.sides_on.items()))

    @property
    def selected(self) -> Mapping[str, str]:
        """The columns of a pair that a result has besides its key, each with its SQL."""
        return Side(self.select).selected(tuple(name for name in self.pair.selectable if name not in self.by))

    @cached_property
    def types(self) -> dict[str, str | None]:
        """The Spark type of each of them; None where only Spark knows it."""
        of = f"window join {self.name!r}"
        types = self.pair.types
        return {name: check_value(f"column {name!r} of {of}", sql, types) for name, sql in self.selected.items()}

    @property
    def values(self) -> tuple[str, ...]:
        """The columns of a pair."""
        return tuple(self.selected)

    def value_columns(self) -> tuple[ColumnSpec, ...]:
        """The columns that are selected of the two rows."""
        return tuple(selected_columns(self.pair, self.selected, self.types))

    @property
    def fingerprint(self) -> dict[str, Any]:
        """All but what says when results appear, and whether late rows are left out: that changes no result."""
        return {**super().fingerprint, "join": self.kind, "column": dict(self.selected)}
