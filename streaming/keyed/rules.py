"""The rules of a control stream: the history of each, and which are in force for a row or a timer.

The rows of a `History` that is pinned are found in the same way: by the batch that is pinned, and by time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from operator import itemgetter
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import ADDED, BATCH, ORIGIN, SIGN, FunctionError, is_less, optional_micros, python_values, row_class
from streaming.declare import VALID_FROM, VALID_TO, History, Pinned, Stream
from streaming.lake import Lake
from streaming.log import Batch, LogFiles, batches_after, head, read_log, valid
from streaming.operators import Progress
from streaming.tables import delta

Chains = dict[tuple[Any, ...], list[tuple[int, tuple[Any, ...]]]]
"""Per rule what it became: the batch of the control stream that changed it, and the row, each newer than the last."""

_BATCH = itemgetter(0)
_PLACE = "_place"

MOST_RULES = 100_000
"""The greatest number of rules, and of changes of them that a step follows, in the memory of a task."""


class RuleHistory:
    """The history of rules, batch by batch of their control stream."""

    def __init__(self, pinned: Pinned, chains: Chains | None = None) -> None:
        self.pinned = pinned
        self.chains: Chains = chains or {}
        self._keys = [pinned.control.columns.index(name) for name in pinned.by]
        self._version = None if pinned.version is None else pinned.control.columns.index(pinned.version)
        self._removed = None if pinned.removed is None else pinned.control.columns.index(pinned.removed)

    def add(self, batch: int, row: tuple[Any, ...]) -> None:
        """Take a row of the control stream, in the order of its log; one with a lesser version changes nothing."""
        chain = self.chains.setdefault(tuple(row[place] for place in self._keys), [])
        if chain and self._version is not None:
            new, old = row[self._version], chain[-1][1][self._version]
            if old is not None and (new is None or is_less(new, old)):
                return
        chain.append((batch, row))

    def since(self, batch: int) -> RuleHistory:
        """The history without what was superseded by `batch`: nobody asks for rules of earlier batches any more."""
        chains = {
            key: chain[max(bisect_right(chain, batch, key=_BATCH) - 1, 0) :] for key, chain in self.chains.items()
        }
        if self._removed is not None and self._version is None:
            # With versions, one that was removed still has to outdo those that come after it.
            chains = {key: chain for key, chain in chains.items() if not self._is_gone(chain, batch)}
        return RuleHistory(self.pinned, chains)

    def read(self, rows: DataFrame, first: int) -> None:
        """Take further rows of the control stream; of those up to batch `first` only what is in force then."""
        add_rules(self, rows, first)

    def opened(self, pins: Pins) -> RulesByPin:
        """The rules by what each batch has pinned."""
        return RulesByPin(self, pins)

    def _is_gone(self, chain: list[tuple[int, tuple[Any, ...]]], batch: int) -> bool:
        """True if a rule was removed up to a batch, and has not come again."""
        return len(chain) == 1 and chain[0][0] <= batch and bool(chain[0][1][self._removed or 0])

    def of_all(self, column: str) -> list[Any]:
        """The value of a column in each rule that is kept, in the order of their places."""
        place = self.pinned.control.columns.index(column)
        return [row[place] for _, chain in self.in_order() for _, row in chain]

    def in_order(self) -> list[tuple[tuple[Any, ...], list[tuple[int, tuple[Any, ...]]]]]:
        """The history of each rule by key, nulls first: the order in which they came depends on when they were read."""
        return sorted(self.chains.items(), key=lambda entry: [(value is not None, value) for value in entry[0]])

    def __len__(self) -> int:
        return sum(map(len, self.chains.values()))


@dataclass(frozen=True, slots=True)
class Valid:
    """A row of a history from one instant until another, in microseconds, exclusive, or without an end.

    It was added by the batch `since` of the stream, and taken back by the batch `until`; None where it stands.
    """

    since: int
    until: int | None
    begins: int
    ends: int | None
    identity: str
    row: tuple[Any, ...]

    def holds(self, pin: int, at: int | None) -> bool:
        """True if it was known by batch `pin`, and valid at an instant where one is asked for."""
        known = self.since <= pin and (self.until is None or pin < self.until)
        return known and (at is None or (self.begins <= at and (self.ends is None or at < self.ends)))


class Dimension:
    """The rows of a pinned history by their keys, batch by batch of its stream."""

    def __init__(self, pinned: Pinned, rows: Mapping[tuple[Any, ...], Sequence[Valid]] | None = None) -> None:
        assert pinned.history is not None
        self.pinned = pinned
        self.history = pinned.history
        self.rows: dict[tuple[Any, ...], list[Valid]] = {key: [*of_key] for key, of_key in (rows or {}).items()}

    def __len__(self) -> int:
        return sum(map(len, self.rows.values()))

    def of_all(self, column: str) -> list[Any]:
        """None: rows of a history are no conditions."""
        return []

    def since(self, batch: int) -> Dimension:
        """The rows without those that were taken back by `batch`: nobody asks as of earlier ones any more."""
        left = {
            key: [each for each in of_key if each.until is None or each.until > batch]
            for key, of_key in self.rows.items()
        }
        return Dimension(self.pinned, {key: of_key for key, of_key in left.items() if of_key})

    def read(self, rows: DataFrame, first: int) -> None:
        """Take further signed rows of the history; of those up to batch `first` only what stands then is fetched."""
        number, columns = F.col(BATCH), [*self.history.columns]
        values = [*(f"`{name}`" for name in columns), ADDED, SIGN, BATCH]
        newest = F.max_by(F.struct(*values), number).alias("_row")
        before = rows.where(number <= first).groupBy(ADDED).agg(F.sum(SIGN).alias("_net"), newest)
        # What was taken back since is of a row that is known already, or was added by `first`.
        told = before.where("_net <> 0").select("_row.*").union(rows.where(number > first).select(*values))
        read = told.orderBy(BATCH, SIGN).toArrow()
        for *row, identity, sign, batch in zip(*map(python_values, read.columns), strict=True):
            self._tell(dict(zip(columns, row, strict=True)), identity, sign, batch)

    def opened(self, pins: Pins) -> RowsByPin:
        """The rows by what each batch has pinned."""
        return RowsByPin(self, pins)

    def _tell(self, row: dict[str, Any], identity: str, sign: int, batch: int) -> None:
        of_key = self.rows.setdefault(tuple(row[name] for name in self.pinned.by), [])
        begins, ends, values = row[VALID_FROM], row.get(VALID_TO), tuple(row.values())
        if sign > 0:
            of_key.append(Valid(batch, None, begins, ends, identity, values))
            return
        for place, each in enumerate(of_key):
            if each.until is None and each.identity == identity:
                of_key[place] = replace(each, until=batch)
                return


class RulesInForce(Mapping[tuple[Any, ...], Any]):
    """The mapping that a function sees as `key.rules`: the rows of the control stream in force, by their keys."""

    __slots__ = ("_by", "_chains", "_removed", "pin")

    def __init__(self, chains: Mapping[tuple[Any, ...], list[tuple[int, Any]]], pinned: Pinned, pin: int) -> None:
        self._chains, self._by = chains, pinned.by
        self._removed = None if pinned.removed is None else pinned.control.columns.index(pinned.removed)
        self.pin = pin
        """The newest batch of the control stream that is seen."""

    def __getitem__(self, key: tuple[Any, ...]) -> Any:
        if not isinstance(key, tuple) or len(key) != len(self._by):
            names = ", ".join(f"row.{name}" for name in self._by)
            raise FunctionError(
                f"there is no rule {key!r}: rules are looked up by a tuple of {len(self._by)}, as in key.rules.get("
                f"{f'({names},)' if len(self._by) == 1 else f'({names})'})."
            )
        return self._find(key)

    def _find(self, key: tuple[Any, ...]) -> Any:
        chain = self._chains.get(key)
        place = bisect_right(chain, self.pin, key=_BATCH) if chain else 0
        if not chain or not place:
            raise KeyError(key)
        row = chain[place - 1][1]
        if self._removed is not None and row[self._removed]:
            raise KeyError(key)
        return row

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        there = (key for key, chain in self._chains.items() if chain[0][0] <= self.pin)
        return there if self._removed is None else (key for key in there if self.get(key) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class RowsInForce(RulesInForce):
    """The mapping that a function sees as `key.rules` of a history: its rows valid at a time, by their keys."""

    __slots__ = ("_at", "_rows")

    def __init__(self, rows: Mapping[tuple[Any, ...], Sequence[Valid]], pinned: Pinned, pin: int, at: int) -> None:
        super().__init__({}, pinned, pin)
        self._rows = rows
        self._at = at if pinned.history is not None and pinned.history.kind == 2 else None

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return (key for key, of_key in self._rows.items() if any(each.holds(self.pin, self._at) for each in of_key))

    def _find(self, key: tuple[Any, ...]) -> Any:
        for each in self._rows.get(key, ()):
            if each.holds(self.pin, self._at):
                return each.row
        raise KeyError(key)


@dataclass(frozen=True)
class Pins:
    """Which batch of the control stream goes with which batch of the data, and with which time of a timer.

    `batches`: from which batch on, in order. `times`: up to which time, in order; the last stands for all after it too.
    """

    batches: tuple[tuple[int, int], ...]
    times: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, batches: Iterable[tuple[int, int]], marks: Iterable[tuple[int, int]]) -> Pins:
        """The pins of `batches`, (batch, pin) in order, and of `marks`, (watermark after a batch, pin) in order."""
        changes: list[tuple[int, int]] = []
        for batch, pin in batches:
            if not changes or changes[-1][1] != pin:
                changes.append((batch, pin))
        times: list[tuple[int, int]] = []
        for mark, pin in marks:
            # Of batches that the clock did not move in between, the first one fires the timers.
            if times and times[-1][0] == mark:
                continue
            if times and times[-1][1] == pin:
                times.pop()
            times.append((mark, pin))
        return cls(tuple(changes), tuple(times))

    @property
    def first(self) -> int:
        """The earliest that is asked for."""
        return min((pin for _, pin in (*self.batches[:1], *self.times[:1])), default=-1)

    @property
    def last(self) -> int:
        """The latest that is asked for."""
        return max((pin for _, pin in (*self.batches[-1:], *self.times[-1:])), default=-1)

    def of_batch(self, batch: int) -> int:
        """The pin that the rows of a batch see."""
        return self.batches[max(bisect_right(self.batches, batch, key=_BATCH) - 1, 0)][1]

    def of_time(self, at: int) -> int:
        """The pin that a timer sees: that of the first batch after which the clock had reached it."""
        return self.times[min(bisect_left(self.times, at, key=_BATCH), len(self.times) - 1)][1]


@dataclass(frozen=True)
class PinnedRules:
    """The rules of a function over some batches, as they are handed to a task."""

    history: RuleHistory | Dimension
    pins: Pins

    def opened(self) -> RulesByPin | RowsByPin:
        """The pinned rules, opened for use in a task."""
        return self.history.opened(self.pins)


class RulesByPin:
    """Finds the rules that are in force for a row or a timer."""

    def __init__(self, history: RuleHistory, pins: Pins) -> None:
        pinned = history.pinned
        row, self._pinned = row_class(pinned.control.columns), pinned
        self._chains = {
            key: [(batch, tuple.__new__(row, values)) for batch, values in chain] for key, chain in history.in_order()
        }
        self._placed = [(key, row) for key, chain in self._chains.items() for _, row in chain]
        self._pins = pins
        self._of_batch: dict[int, RulesInForce] = {}

    def of_row(self, batch: int, at: int) -> RulesInForce:
        """Those for the rows of a batch of the data, whatever their time."""
        rules = self._of_batch.get(batch)
        if rules is None:
            rules = self._of_batch[batch] = self._at(self._pins.of_batch(batch))
        return rules

    def of_time(self, at: int, rules: RulesInForce) -> RulesInForce:
        """Those for a timer that was set to `at`, by a key that saw `rules`: a late row may set one in the past."""
        pin = self._pins.of_time(at)
        return rules if rules.pin >= pin else self._at(pin)

    def matching(self, in_force: RulesInForce, places: Iterable[int]) -> list[Any]:
        """The rules at these places, without those that are not in force."""
        placed = (self._placed[place] for place in places)
        return [row for key, row in placed if in_force.get(key) is row]

    @property
    def none(self) -> RulesInForce:
        """Those before any batch."""
        return self._at(-1)

    def _at(self, pin: int) -> RulesInForce:
        return RulesInForce(self._chains, self._pinned, pin)


class RowsByPin:
    """Finds the rows of a history that were valid for a row or a timer."""

    def __init__(self, dimension: Dimension, pins: Pins) -> None:
        row, self._pinned = row_class(tuple(dimension.history.columns)), dimension.pinned
        ordered = sorted(dimension.rows.items(), key=lambda entry: entry[0])
        self._rows = {
            key: [replace(each, row=tuple.__new__(row, each.row)) for each in of_key] for key, of_key in ordered
        }
        self._pins = pins

    def of_row(self, batch: int, at: int) -> RowsInForce:
        """Those for a row of a batch of the data with an event time."""
        return self._at(self._pins.of_batch(batch), at)

    def of_time(self, at: int, rules: RulesInForce) -> RowsInForce:
        """Those for a timer that was set to `at`, by a key that saw `rules`."""
        return self._at(max(self._pins.of_time(at), rules.pin), at)

    def matching(self, in_force: RulesInForce, places: Iterable[int]) -> list[Any]:
        """None: rows of a history are no conditions."""
        return []

    @property
    def none(self) -> RowsInForce:
        """Those before any batch."""
        return self._at(-1, 0)

    def _at(self, pin: int, at: int) -> RowsInForce:
        return RowsInForce(self._rows, self._pinned, pin, at)


def new_history(pinned: Pinned) -> RuleHistory | Dimension:
    """The empty history of what is pinned."""
    return RuleHistory(pinned) if pinned.history is None else Dimension(pinned)


class ControlRules:
    """Reads the rules that a data stream has pinned; what it has read it keeps, and asks for what is new."""

    def __init__(self, spark: SparkSession, lake: Lake, stream: Stream, pinned: Pinned) -> None:
        self._spark = spark
        self._lake = lake
        self._stream = stream
        self._pinned = pinned
        self._log: LogFiles | None = None
        self._history = new_history(pinned)
        self._from, self._through = -1, -1
        self._batches: dict[int, tuple[int, int | None]] = {}

    def is_known(self) -> bool:
        """True if the log of the data says how far the control stream was: without that nothing is followed."""
        newest = head(self._lake, self._stream)
        return newest is not None and self._pinned.control.name in newest.pins

    def foreseen(self, batches: Sequence[Batch]) -> Sequence[Batch]:
        """The first of `batches` whose rows can be computed, since a history is as far as they have pinned it."""
        if self._pinned.history is None:
            return batches
        newest = head(self._lake, self._stream)
        assert newest is not None
        through, before_all = history_through(self._lake, self._pinned.history), newest.pins[self._name].first
        is_far = (_pinned_by(each, self._pinned, before_all)[0] <= through for each in batches)
        return [each for each, _ in zip(batches, takewhile(bool, is_far), strict=False)]

    @property
    def _name(self) -> str:
        return self._pinned.control.name

    def of(self, first: int, batches: Sequence[Batch]) -> PinnedRules:
        """The rules for `batches`, in order, and for rows and timers of those from batch `first` on.

        Raises:
            FunctionError: there are more than fit into a task.
        """
        newest = head(self._lake, self._stream)
        assert newest is not None
        before_all = newest.pins[self._name].first
        first, last = min(first, newest.number), batches[-1].number if batches else newest.number
        if first not in self._batches and (not batches or first < batches[0].number):
            batches = [each for each in batches_after(self._lake, self._stream, first - 1) if each.number <= last]
        self._batches |= {each.number: _pinned_by(each, self._pinned, before_all) for each in batches}
        self._batches = {number: each for number, each in sorted(self._batches.items()) if number >= first}
        pins = pins_of(self._batches.items())
        history = self._read(pins.first, pins.last)
        if len(history) > MOST_RULES:
            raise FunctionError(
                f"control stream {self._name!r} has {len(history):,} rules in force or changed within one "
                f"step, and a task holds {MOST_RULES:,} at most. Set rules by fewer keys, or join the two streams "
                "instead. Nothing of this step was kept."
            )
        return PinnedRules(history, pins)

    def _read(self, first: int, last: int) -> RuleHistory | Dimension:
        """The history of the rules while their log went from batch `first` to `last`."""
        if first < self._from:
            self._history, self._from, self._through = new_history(self._pinned), -1, -1
        if last > self._through:
            self._history.read(self._rows(self._through, last), first)
            self._through = last
        self._history, self._from = self._history.since(first), first
        return self._history

    def _rows(self, after: int, through: int) -> DataFrame:
        if self._pinned.history is not None:
            number = F.col(BATCH)
            return signed_rows(self._spark, self._lake, self._pinned.history).where(
                (number > after) & (number <= through)
            )
        self._log = self._log or LogFiles(self._lake, self._pinned.control)
        return self._log.with_batches(self._spark, after, through)


def history_through(lake: Lake, history: History) -> int:
    """The newest batch of its stream that the table of a history has followed; -1 for none."""
    return Progress.of(history, delta.open_table(lake.table(history))).batch


def signed_rows(spark: SparkSession, lake: Lake, history: History) -> DataFrame:
    """The rows that a history adds and takes back."""
    return delta.read(spark, lake.table(history))


def rows_of_control(spark: SparkSession, lake: Lake, pinned: Pinned) -> DataFrame | None:
    """All rows that rules, or a dimension, follow from; None where there is no table of them yet."""
    if pinned.history is not None:
        return signed_rows(spark, lake, pinned.history) if delta.exists(lake.table(pinned.history)) else None
    return read_log(spark, lake, pinned.control) if delta.exists(lake.log(pinned.control)) else None


def rules_of_logs(pinned: Pinned, batches: Sequence[Batch], through: int, rows: DataFrame | None) -> PinnedRules:
    """The rules for the batches up to `through` of a data log that has these `batches`, oldest first.

    The log of the control stream, or the table of the history, has these `rows`; None where there is none yet.
    """
    before_all = batches[-1].pins[pinned.control.name].first
    followed = (batch for batch in batches if batch.number <= through)
    pins = pins_of((batch.number, _pinned_by(batch, pinned, before_all)) for batch in followed)
    history = new_history(pinned)
    if rows is not None:
        known = rows if pinned.history is not None else valid(rows)
        history.read(known.where(F.col(BATCH) <= pins.last), pins.first)
    return PinnedRules(history, pins)


def add_rules(history: RuleHistory, rows: DataFrame, first: int) -> None:
    """Add the `rows` of a control stream; of those up to batch `first` only what is in force then is fetched."""
    pinned, number = history.pinned, F.col(BATCH)
    place = pinned.control.source.order_of(F.col(ORIGIN)).alias(_PLACE)
    columns: list[Column | str] = [*(f"`{name}`" for name in pinned.control.columns), BATCH, place]
    newer = F.struct(*([] if pinned.version is None else [f"`{pinned.version}`"]), BATCH, place)
    in_force = (
        rows.where(number <= first)
        .groupBy(*(f"`{name}`" for name in pinned.by))
        .agg(F.max_by(F.struct(*columns), newer).alias("_rule"))
        .where("_rule is not null")
        .select("_rule.*")
    )
    changes = in_force.union(rows.where(number > first).select(*columns)).orderBy(BATCH, _PLACE).drop(_PLACE)
    values = [python_values(column) for column in changes.toArrow().columns]
    for *row, batch in zip(*values, strict=True):
        history.add(batch, tuple(row))


def pins_of(batches: Iterable[tuple[int, tuple[int, int | None]]]) -> Pins:
    """The pins of batches in order, of each its number, its pin, and the clock after it, null before there is one."""
    entries = list(batches)
    marks = [(mark, pin) for _, (pin, mark) in entries if mark is not None]
    return Pins.of([(number, pin) for number, (pin, _) in entries], marks)


def _pinned_by(batch: Batch, pinned: Pinned, before_all: int) -> tuple[int, int | None]:
    pin = batch.pins.get(pinned.control.name)
    return before_all if pin is None else pin.newest, optional_micros(batch.after.watermark)
