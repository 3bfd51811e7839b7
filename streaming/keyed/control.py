"""The rules of a step, from the log of the control stream and from what the commits of the data say of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import FunctionError, optional_micros, python_values
from streaming.declare import Pinned, Stream
from streaming.keyed.partition import BATCH, ORIGIN
from streaming.keyed.rules import PinnedRules, Pins, RuleHistory
from streaming.lake import Lake
from streaming.log import Batch, LogFiles, batches_after, head, valid

_PLACE = "_place"

MOST_RULES = 100_000
"""The greatest number of rules, and of changes of them that a step follows, in the memory of a task."""


class ControlRules:
    """Reads the rules that a data stream has pinned; what it has read it keeps, and asks for what is new."""

    def __init__(self, spark: SparkSession, lake: Lake, stream: Stream, pinned: Pinned) -> None:
        self._spark = spark
        self._lake = lake
        self._stream = stream
        self._pinned = pinned
        self._log: LogFiles | None = None
        self._history = RuleHistory(pinned)
        self._from, self._through = -1, -1
        self._batches: dict[int, tuple[int, int | None]] = {}

    def is_known(self) -> bool:
        """True if the log of the data says how far the control stream was: without that nothing is followed."""
        newest = head(self._lake, self._stream)
        return newest is not None and self._pinned.of.name in newest.pins

    def of(self, first: int, batches: Sequence[Batch]) -> PinnedRules:
        """The rules for `batches`, in order, and for rows and timers of those from batch `first` on.

        Raises:
            FunctionError: there are more than fit into a task.
        """
        newest = head(self._lake, self._stream)
        assert newest is not None
        before_all = newest.pins[self._pinned.of.name].first
        first, last = min(first, newest.number), batches[-1].number if batches else newest.number
        if first not in self._batches and (not batches or first < batches[0].number):
            batches = [each for each in batches_after(self._lake, self._stream, first - 1) if each.number <= last]
        self._batches |= {each.number: _pinned_by(each, self._pinned, before_all) for each in batches}
        self._batches = {number: each for number, each in sorted(self._batches.items()) if number >= first}
        pins = pins_of(self._batches.items())
        history = self._read(pins.first, pins.last)
        if len(history) > MOST_RULES:
            raise FunctionError(
                f"control stream {self._pinned.of.name!r} has {len(history):,} rules in force or changed within one "
                f"step, and a task holds {MOST_RULES:,} at most. Set rules by fewer keys, or join the two streams "
                "instead. Nothing of this step was kept."
            )
        return PinnedRules(history, pins)

    def _read(self, first: int, last: int) -> RuleHistory:
        """The history of the rules while their log went from batch `first` to `last`."""
        if first < self._from:
            self._history, self._from, self._through = RuleHistory(self._pinned), -1, -1
        if last > self._through:
            self._log = self._log or LogFiles(self._lake, self._pinned.of)
            add_rules(self._history, self._log.with_batches(self._spark, self._through, last), first)
            self._through = last
        self._history, self._from = self._history.since(first), first
        return self._history


def rules_of_logs(pinned: Pinned, batches: Sequence[Batch], through: int, rows: DataFrame | None) -> PinnedRules:
    """The rules for the batches up to `through` of a data log that has these `batches`, oldest first.

    The log of the control stream has these `rows`; None where there is no such log yet.
    """
    before_all = batches[-1].pins[pinned.of.name].first
    followed = (batch for batch in batches if batch.number <= through)
    pins = pins_of((batch.number, _pinned_by(batch, pinned, before_all)) for batch in followed)
    history = RuleHistory(pinned)
    if rows is not None:
        add_rules(history, valid(rows).where(F.col(BATCH) <= pins.last), pins.first)
    return PinnedRules(history, pins)


def add_rules(history: RuleHistory, rows: DataFrame, first: int) -> None:
    """Add the `rows` of a control stream; of those up to batch `first` only what is in force then is fetched."""
    pinned, number = history.pinned, F.col(BATCH)
    place = pinned.of.source.order_of(F.col(ORIGIN)).alias(_PLACE)
    columns: list[Column | str] = [*(f"`{name}`" for name in pinned.of.columns), BATCH, place]
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
    pin = batch.pins.get(pinned.of.name)
    return before_all if pin is None else pin.newest, optional_micros(batch.after.watermark)
