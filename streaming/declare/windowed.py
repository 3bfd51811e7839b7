"""The declaration of a windowed view: keys, window and what is computed, over one stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from streaming.base import (
    BATCH,
    ORIGIN,
    SIGN,
    STAMP,
    DeclarationError,
    check_column_name,
    check_name,
    columns_of,
    interval,
    settle,
)
from streaming.declare.aggregates import Aggregate
from streaming.declare.columns import ColumnSpec, failed_of_view, key_columns, log_columns, read_from_log, unit_of
from streaming.declare.delivered import CHANGES
from streaming.declare.freshness import Freshness, check_freshness
from streaming.declare.functions import WindowFunction
from streaming.declare.late_policy import LatePolicy, check_policy
from streaming.declare.operator import (
    CORRECTIONS,
    CURRENT,
    FAILED,
    LATE,
    OPEN,
    STATE,
    STATE_BOUNDED,
    UPDATES,
    OnError,
    TableSpec,
)
from streaming.declare.over_windows import VOID, WRITTEN, OverWindows
from streaming.declare.stream import Stream
from streaming.declare.view_checks import check_keys, check_view_expressions
from streaming.windows import Window


@dataclass(frozen=True)
class Windowed(OverWindows):
    """Results of stream `of` per key (`by`) and window, over the rows for which `where` is true.

    What is computed is either `aggregates` or a full-window `function`. With `distinct`, rows of one window that agree
    in those columns count once: the first of them in the log's order, whatever the other columns say. Both `distinct`
    and `function` keep the rows of open sessions as state; aggregates with parts keep a value each.

    `late` says what becomes of late pairs, and `allowed_lateness` belongs to `late="update"` (see `LatePolicy`).
    `early` (`"each batch"` or an interval of processing time) keeps a table of the windows that are still open.
    `every` (an interval of processing time, such as `"10 seconds"`): how often a running pipeline steps the view at
    most; left out, after each batch. `fresh_within`: how old the watermark may be before the running view counts as
    late; `Freshness("2 hours", by=("tenant",))` asks it of the newest window of each tenant, too.

    `on_error="side"` leaves out the rows for which `where`, the window or an aggregate's expression cannot be computed,
    as if they had never come, and the windows for which `function` raises; the side output `failed` tells them. What
    fails for a window as a whole, such as a sum that is too large, pauses the view all the same.

    Raises:
        DeclarationError: unknown column, reserved or repeated name, nothing to compute, or a policy that cannot be.
    """

    name: str
    of: Stream
    window: Window
    aggregates: Mapping[str, Aggregate] = field(default_factory=dict)
    by: tuple[str, ...] = ()
    where: str | None = None
    description: str = ""
    distinct: tuple[str, ...] = ()
    function: WindowFunction | None = None
    late: LatePolicy = "correct"
    allowed_lateness: str | None = None
    early: str | None = None
    fresh_within: str | Freshness | None = None
    every: str | None = None
    on_error: OnError = "pause"

    kind_name = "view"
    late_name = "late pairs"
    begins_at_once = True

    def __post_init__(self) -> None:
        check_name(self.kind_name, self.name)
        settle(self, f"view {self.name!r}")
        if bool(self.aggregates) == (self.function is not None):
            raise DeclarationError(
                f"view {self.name!r} has {'both' if self.aggregates else 'neither'} aggregates and a function",
                "give one of the two, such as aggregates={'rows': count()}.",
                operator=self.name,
            )
        check_keys(f"by of view {self.name!r}", self.by, self.of.types)
        check_keys(f"distinct of view {self.name!r}", self.distinct, self.of.types)
        check_view_expressions(self.name, self.of.types, self.window, self.where, self.aggregates)
        for name in self.values:
            check_column_name(name)
            if name in self.identity:
                raise DeclarationError(
                    f"result {name!r} of view {self.name!r} has the name of a key or window column "
                    f"({', '.join(self.identity)})",
                    "rename it.",
                    operator=self.name,
                )
        if len(set(self.by)) != len(self.by):
            raise DeclarationError(
                f"by={self.by!r} of view {self.name!r} repeats a key",
                "name each once.",
                field="by",
                value=self.by,
                operator=self.name,
            )
        if self.every is not None:
            interval(self.every)
        of_keys = {name: self.of.types.get(name) for name in self.by}
        check_freshness(f"view {self.name!r}", self.fresh_within, of_keys)
        check_policy(self.name, self.late, self.allowed_lateness, self.early)

    @property
    def reads(self) -> tuple[Stream, ...]:
        """The one stream."""
        return (self.of,)

    @property
    def own_tables(self) -> tuple[TableSpec, ...]:
        """State, and where declared updates and open windows."""
        updates = TableSpec(UPDATES, f"Updates of view {self.name} by late rows", bounded=("window_start", BATCH))
        open_ = TableSpec(
            OPEN,
            f"Open windows of view {self.name}, provisional",
            is_result=False,
            is_replaced=True,
            bounded=("window_start",),
        )
        state = TableSpec(
            STATE, f"What view {self.name} keeps between steps", is_result=False, is_state=True, bounded=STATE_BOUNDED
        )
        return (*([updates] if self.updated else []), *([open_] if self.early is not None else []), state)

    def columns_of(self, suffix: str = "") -> tuple[ColumnSpec, ...]:
        """Keys, window, aggregates or the function's results, then what the table with this suffix adds."""
        if suffix == FAILED and self.diverts:
            return tuple(failed_of_view(self.of))
        if suffix == LATE:
            start, end, _ = self._bounds
            of_log = {spec.name: spec for spec in _as_read(self.of, log_columns(self.of))}
            origin = ((self.of.name, ORIGIN),)
            sign = ColumnSpec(SIGN, "1 for a row that is added, -1 for one that is taken back.", "int", origin)
            signed = (sign,) if self.of.takes_back else ()
            place = (of_log[STAMP], of_log[BATCH])
            return (start, end, *place, *signed, *(of_log[name] for name in self.of.columns))
        return super().columns_of(suffix)

    def key_columns(self) -> Iterable[ColumnSpec]:
        """Those of the log."""
        return key_columns(self.of, self.by)

    def value_columns(self) -> Iterable[ColumnSpec]:
        """Those of the aggregates, or of the function."""
        of = self.of
        return _of_aggregates(of, self.aggregates) if self.function is None else _of_function(of, self.function)

    @property
    def refuses_changes(self) -> str:
        """Late rows that are left out, and of sessions updates: one that falls apart is no later result of itself."""
        if self.updated and self.window.merging:
            return (
                "late='update' publishes sessions that only grow, and one may fall apart where a row is taken back; "
                "declare late='correct'"
            )
        return super().refuses_changes

    @property
    def _added(self) -> Mapping[str, tuple[ColumnSpec, ...]]:
        added = super()._added
        batch = ColumnSpec(
            "_batch", "The batch of the log that brought the late rows, or closed the session.", "bigint"
        )
        through = next(spec for spec in added[CORRECTIONS] if spec.name in self.counted_through)
        return {**added, UPDATES: (batch, VOID, WRITTEN), OPEN: (through, WRITTEN)}

    @property
    def fingerprint(self) -> dict[str, Any]:
        """All but what says when results appear, and whether late pairs are left out: that changes no result.

        The allowed lateness is part of it: where it grows, late pairs that were left to the schedule would be nobody's.
        """
        function = self.function
        return {
            "stream": self.of.name,
            "event time": self.of.event_time,
            "window": self.window.fingerprint,
            "by": list(self.by),
            "where": self.where,
            "aggregate": {name: aggregate.sql for name, aggregate in self.aggregates.items()},
            "distinct": list(self.distinct),
            "function": None if function is None else f"{function.name} version {function.version}",
            "function's results": None if function is None else function.returns,
            "allowed lateness": None if self.allowed_lateness is None else str(self.lateness),
            **self._diverted,
        }

    @property
    def reserved_suffixes(self) -> tuple[str, ...]:
        """Those of its tables, and of its late pairs, failed rows and what is published of it."""
        return (CORRECTIONS, UPDATES, OPEN, LATE, STATE, CURRENT, CHANGES, *([FAILED] if self.diverts else []))

    @property
    def result_key(self) -> tuple[str, ...]:
        """Those that identify it; none where a function gives several results of a window."""
        return () if self.gives_many else self.identity

    @property
    def values(self) -> tuple[str, ...]:
        """The columns that are computed: the aggregates' or the function's."""
        return tuple(self.aggregates) if self.function is None else self.function.columns

    @property
    def gives_many(self) -> bool:
        """True of a function."""
        return self.function is not None

    @property
    def counted_through(self) -> Mapping[str, Stream]:
        """One column, because there is one log."""
        return {"_through_batch": self.of}

    @property
    def updated(self) -> bool:
        """True if the stream process itself corrects by late pairs that come within the allowed lateness."""
        return self.late == "update"

    @property
    def lateness(self) -> timedelta:
        """The allowed lateness; zero where the stream process corrects nothing."""
        return timedelta() if self.allowed_lateness is None else interval(self.allowed_lateness)


def _of_aggregates(stream: Stream, aggregates: Mapping[str, Aggregate]) -> Iterator[ColumnSpec]:
    for name, aggregate in aggregates.items():
        about = f"{aggregate.meaning[:1].upper()}{aggregate.meaning[1:]}: `{aggregate.sql}`"
        meaning = f"{about}{unit_of(stream, aggregate.measured)}."
        yield ColumnSpec(name, meaning, None, read_from_log(stream, aggregate.sql))


def _of_function(stream: Stream, function: WindowFunction) -> Iterator[ColumnSpec]:
    """A function is handed whole rows, so that each result may follow from every column."""
    everything = tuple((stream.name, name) for name in stream.columns)
    for column in columns_of(function.returns):
        yield ColumnSpec(column.name, f"Result of `{function.name}`. {column.comment}".strip(), column.type, everything)


def _as_read(stream: Stream, columns: Iterable[ColumnSpec]) -> Iterator[ColumnSpec]:
    """Columns of the log as a read of it shows them."""
    for spec in columns:
        yield ColumnSpec(spec.name, spec.meaning, spec.type, ((stream.name, spec.name),))
