"""The declaration of a join of two streams within bounds of time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Literal, get_args

from streaming.base import (
    AT,
    BATCH,
    DAY,
    MICROSECOND,
    ORIGIN,
    DeclarationError,
    FrozenMapping,
    check_choice,
    check_column_name,
    check_condition,
    check_name,
    check_value,
    earlier,
    interval,
    names_in,
    settle,
    signed_interval,
)
from streaming.declare.columns import ColumnSpec, failed_of_sides
from streaming.declare.delivered import CHANGES
from streaming.declare.join_keys import JoinKind, SideName, check_keys_meet_exactly, check_keys_there, keys_of
from streaming.declare.operator import (
    CURRENT,
    FAILED,
    LATE,
    UNMATCHED,
    OnError,
    Operator,
    RowLaw,
    TableSpec,
    published_columns,
    published_of,
    signed_columns,
)
from streaming.declare.side import Side, is_column
from streaming.declare.stream import Stream

_BOUNDS = "two intervals, such as ('-1 hour', '15 minutes')"
LEFT_AT, RIGHT_AT = "_left_at", "_right_at"
"""The event times of the rows of a pair."""


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

    Of a stream of which rows are taken back, the pairs of a row are taken back with it. The table then has both, with
    `_change` and `_added`, and what is current are the pairs of rows that stand; such a join is an inner one.

    `on_error="side"` makes no pair of two rows for which `where`, or a column that is selected, cannot be computed, and
    tells of no row alone for which it cannot; the side output `failed` tells them.

    `every` (an interval of processing time): how often a running pipeline steps it at most; left out, after each batch.

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
    current_meaning = "pairs, and rows that have no partner"
    is_timed = True

    def __post_init__(self) -> None:
        check_name(self.kind_name, self.name)
        check_join_kind(f"of join {self.name!r}", self.kind)
        settle(self, f"join {self.name!r}")
        _check_sides(self.name, self.left, self.right)
        object.__setattr__(self, "on", FrozenMapping(dict(self.keys)))
        check_keys_there(f"of join {self.name!r}", dict(self.keys), self.left, self.right)
        check_keys_meet_exactly(f"of join {self.name!r}", dict(self.keys), self.left, self.right)
        _check_between(self.name, self.between)
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
        """The least time by which the right row is later than the left one; below zero for earlier."""
        return signed_interval(self.between[0])

    @property
    def upper(self) -> timedelta:
        """The greatest time by which the right row is later than the left one; below zero for earlier."""
        return signed_interval(self.between[1])

    def first_begin(self, watermark: datetime | None) -> datetime | None:
        """That of a row whose last possible partner has just become late, where such are told of; else as others."""
        waits = [max(timedelta(), self.upper if side == "left" else -self.lower) for side in self.outer_sides]
        return None if watermark is None else earlier(watermark, max(waits, default=timedelta()))

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
    def late_policy(self) -> str:
        """As declared."""
        return self.late

    def laws_of(self, suffix: str = "") -> tuple[RowLaw, ...]:
        """Each pair once, of rows as close as declared; each row without a partner once, and without one."""
        day = RowLaw("day_of_time", (), "_day = to_date(_at)", "a result is on the day of its event time")
        if suffix == UNMATCHED:
            alone = f"({LEFT_AT} is null) <> ({RIGHT_AT} is null)"
            of_one = RowLaw("alone", (), alone, "a row without a partner is of one side only")
            return RowLaw("unique_row", (ORIGIN,)), of_one, day
        if suffix:
            return ()
        lower, upper = (bound // MICROSECOND for bound in (self.lower, self.upper))
        apart = f"unix_micros({RIGHT_AT}) - unix_micros({LEFT_AT}) between {lower} and {upper}"
        close = RowLaw("within_bounds", (), apart, "rows of a pair are as close as declared")
        return RowLaw("unique_pair", (ORIGIN,)), close, day

    @property
    def joins_clocks(self) -> bool:
        """Those of both streams."""
        return True

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        """Its pairs, and the rows that had none in time."""
        about = f": {self.description}" if self.description else ""
        pairs = TableSpec("", f"Pairs of join {self.name}{about}", bounded=(AT, BATCH))
        lonely = f"Rows of join {self.name} that had no partner in time"
        unmatched = TableSpec(UNMATCHED, lonely, bounded=(AT, BATCH))
        return (pairs, unmatched) if self.outer_sides else (pairs,)

    @property
    def published(self) -> tuple[TableSpec, ...]:
        """Current results, where pairs void rows that were told, or are taken back."""
        return published_of(self) if self.overlaid else ()

    @property
    def signed(self) -> bool:
        """True where rows of a stream of it are taken back."""
        return any(stream.takes_back for stream in self.reads)

    @property
    def overlaid(self) -> bool:
        """True where what is current is not all that was told."""
        return self.signed or bool(self.outer_sides)

    @property
    def refuses_changes(self) -> str:
        """A row without a partner, which may lose the one that it had, and late rows that are left out."""
        if self.outer_sides:
            return (
                f"kind={self.kind!r} would not tell of a row whose partner is taken back once its time is over; "
                "declare kind='inner'"
            )
        if self.late == "drop":
            return "late='drop' would leave out what takes a row back; declare late='join'"
        return ""

    @property
    def refuses_retractions(self) -> str:
        """Rows without a key are joined as they come."""
        return "a join of streams without a key takes each row for one that stands"

    @property
    def reserved_suffixes(self) -> tuple[str, ...]:
        """Also of a join that tells of pairs alone, so that its kind can be changed."""
        return (UNMATCHED, LATE, CURRENT, CHANGES, *([FAILED] if self.diverts else []))

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
        if self.signed:
            # A row that takes back another one has come at another time, from another place.
            return (*self.selected, LEFT_AT, RIGHT_AT, AT)
        return (*self.selected, LEFT_AT, RIGHT_AT, "_at", "_watermark", ORIGIN)

    @property
    def explained_by(self) -> tuple[str, ...]:
        """The columns that are selected, and the times of the two rows."""
        return (*self.selected, LEFT_AT, RIGHT_AT)

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
        """Its pairs, or with an output the rows without one; what is current where some are taken back."""
        if self.signed:
            return ("current",)
        return ("rows", "current") if self.outer_sides else ("rows",)

    def columns_of(self, suffix: str = "") -> tuple[ColumnSpec, ...]:
        """The selected columns, then which rows each is of; rows without a partner have null in place of one."""
        if suffix == LATE:
            return tuple(_late_columns(self.reads))
        if suffix == FAILED and self.diverts:
            return tuple(failed_of_sides(self.reads, windowed=False))
        if suffix in (CURRENT, CHANGES):
            return published_columns(self, suffix) if self.overlaid else ()
        if suffix != "" and (suffix != UNMATCHED or not self.outer_sides):
            return ()
        signed = signed_columns() if self.signed else ()
        return (*selected_columns(self.pair, self.selected, self.types), *_added_columns(len(self.reads)), *signed)


def check_join_kind(of: str, kind: str) -> None:
    """Refuse a kind of join that there is not.

    Raises:
        DeclarationError: with those there are.
    """
    check_choice("kind", kind, of, get_args(JoinKind), "For a right join exchange the two streams.")


def _check_sides(name: str, left: Stream, right: Stream) -> None:
    """Refuse two streams of one name.

    Raises:
        DeclarationError: they differ, so that it is not one stream joined with itself.
    """
    if left.name == right.name and left != right:
        raise DeclarationError(
            f"join {name!r} reads two streams that are called {left.name!r}", "rename one of them.", operator=name
        )


def _check_between(name: str, between: tuple[str, ...]) -> None:
    """Refuse bounds that are not two intervals in order.

    Raises:
        DeclarationError: with what to write.
    """
    if len(between) != 2:
        raise DeclarationError(
            f"between of join {name!r} has {len(between)} entries", f"write {_BOUNDS}.", operator=name
        )
    lower, upper = between
    if signed_interval(lower) >= signed_interval(upper):
        raise DeclarationError(
            f"between={between!r} of join {name!r} holds no time: {lower!r} is not less than {upper!r}.",
            f"Write how much later the right row is at least and at most, below zero for earlier: {_BOUNDS}.",
            field="between",
            value=between,
            operator=name,
        )


def check_selected_names(of: str, select: tuple[str, ...] | Mapping[str, str] | None, pair: PairColumns) -> None:
    """Refuse columns of a pair, or of a result, that are called alike.

    Raises:
        DeclarationError: with what is called alike.
    """
    # Spark does not tell `id` from `ID`.
    for what, names in (("a pair", pair.selectable), ("select", tuple(select or ()))):
        counts = Counter(column.lower() for column in names)
        if alike := sorted(column for column, count in counts.items() if count > 1):
            raise DeclarationError(
                f"{what} {of} has {', '.join(map(repr, alike))} twice",
                "rename a column of a stream by a derived one, or select each once.",
            )
    if select is not None and not select:
        raise DeclarationError(f"select {of} names no column", "leave it out to keep all.")


class PairColumns:
    """Under which names SQL over a pair reads the columns of both streams, joined on `keys`: (left's, right's)."""

    def __init__(self, left: Stream, right: Stream, keys: tuple[tuple[str, str], ...]) -> None:
        self._streams = {"left": left, "right": right}
        self._keys = dict(keys)

    @cached_property
    def left(self) -> dict[str, str]:
        """The name in a pair of each column of the left stream."""
        own, other = self._streams["left"].columns, self._not_key_of_right
        return {name: self._named("left", name, () if name in self._keys else other) for name in own}

    @cached_property
    def right(self) -> dict[str, str]:
        """The name in a pair of each column of the right stream that is no key."""
        return {name: self._named("right", name, self._streams["left"].columns) for name in self._not_key_of_right}

    @property
    def selectable(self) -> tuple[str, ...]:
        """The columns that are selected unless said otherwise."""
        return (*self.left.values(), *self.right.values())

    @cached_property
    def types(self) -> dict[str, str | None]:
        """The columns that SQL may read, with their Spark types, None where only Spark knows it."""
        left, right = self._streams["left"], self._streams["right"]
        return {
            **{alias: left.types[name] for name, alias in self.left.items()},
            **{alias: right.types[name] for name, alias in self.right.items()},
            LEFT_AT: "timestamp",
            RIGHT_AT: "timestamp",
        }

    @cached_property
    def of(self) -> dict[str, tuple[tuple[str, str], ...]]:
        """The columns of the logs behind each column that SQL may read: for a key, those of both."""
        left, right = self._streams["left"], self._streams["right"]
        return {
            **{
                alias: ((left.name, name), *([(right.name, self._keys[name])] if name in self._keys else []))
                for name, alias in self.left.items()
            },
            **{alias: ((right.name, name),) for name, alias in self.right.items()},
            LEFT_AT: ((left.name, left.event_time),),
            RIGHT_AT: ((right.name, right.event_time),),
        }

    @property
    def _not_key_of_right(self) -> tuple[str, ...]:
        return tuple(name for name in self._streams["right"].columns if name not in self._keys.values())

    @staticmethod
    def _named(side: SideName, name: str, others: tuple[str, ...]) -> str:
        # Spark does not tell `id` from `ID`.
        return f"{side}_{name}" if name.lower() in {other.lower() for other in others} else name


def selected_columns(
    pair: PairColumns, selected: Mapping[str, str], types: Mapping[str, str | None]
) -> Iterator[ColumnSpec]:
    """The selected columns, with their `types`."""
    for name, sql in selected.items():
        of = dict.fromkeys(one for column in sorted(names_in(sql)) for one in pair.of[column])
        yield ColumnSpec(name, "" if is_column(sql, name) else f"`{sql}`.", types[name], tuple(of))


def _added_columns(streams: int) -> Iterator[ColumnSpec]:
    """The columns that every row of a join of so many streams has beside its own."""
    brought = "Number of the step that brought it" if streams > 1 else "Number of the batch with which it came"
    yield ColumnSpec(LEFT_AT, "Event time of the left row.", "timestamp")
    yield ColumnSpec(RIGHT_AT, "Event time of the right row.", "timestamp")
    yield ColumnSpec("_at", "Event time: the later one of both.", "timestamp")
    yield ColumnSpec("_watermark", "The stamp: the later one of both rows.", "timestamp")
    yield ColumnSpec("_batch", f"{brought}, in the table's own sequence.", "bigint")
    yield ColumnSpec(ORIGIN, "Where the sources had the left and the right row.", "struct")
    yield ColumnSpec("_written_at", "When it was written.", "timestamp")
    yield ColumnSpec(DAY, "Date of the event time, UTC.", "date")


def _late_columns(streams: tuple[Stream, ...]) -> Iterator[ColumnSpec]:
    """The columns of the late rows of a join of `streams`, each of which has columns of its own."""
    yield ColumnSpec("stream", "Whose row it is.", "string")
    yield ColumnSpec("_at", "Event time.", "timestamp", tuple((each.name, each.event_time) for each in streams))
    yield ColumnSpec(
        "_watermark", "The stamp: the watermark that was in force when the row's batch was read.", "timestamp"
    )
    yield ColumnSpec("_batch", "Number of the batch that brought the row, in its log's own sequence.", "bigint")
    of = tuple((each.name, name) for each in streams for name in each.columns)
    yield ColumnSpec("row", "The row, as JSON.", "string", of)
