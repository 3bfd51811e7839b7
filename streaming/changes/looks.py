"""Current results at one moment, of each kind of operator that corrects some, and on which days they may be new."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import reduce
from itertools import takewhile
from typing import Generic, Self, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from streaming import keyed
from streaming.base import (
    ADDED,
    AT,
    BATCH,
    DAY,
    REASON,
    RETRACTED,
    SIGN,
    DeclarationError,
    by_kind,
    from_micros,
    literal,
    optional_instant,
    optional_micros,
    python_values,
)
from streaming.declare import CORRECTIONS, UNMATCHED, UPDATES, History, Joined, Keyed, Operator, OverWindows, Selected
from streaming.joins import current_rows, standing_pairs, voided_rows, with_reasons
from streaming.lake import Lake
from streaming.operators import PinnedTables, Progress
from streaming.revisions import intervals_of
from streaming.selected import selected_rows
from streaming.tables import (
    contents_on,
    days_of,
    delta,
    newest_commits,
    numbers_named,
    portions_of,
    read_at_most,
    rows_on,
)
from streaming.views import (
    current_with_reasons,
    parted_from,
    pinned_windows,
    read_corrections,
    read_updates,
    updated_through,
)

NOTHING_CLOSED = -(2**62)

Corrects = TypeVar("Corrects", bound=Operator)


@dataclass(frozen=True)
class ChangePosition:
    """The state that the newest changes follow from: `closed` (a watermark in microseconds) of the first results, the
    updates through a batch, a version of the corrections, a `step` of a join or the batch of a history, all of one
    generation; `revision` numbers the changes. `first` is the version of the first results, which also moves where no
    row is added.
    """

    revision: int = -1
    closed: int = NOTHING_CLOSED
    updates: int = -1
    corrections: int = delta.BEFORE
    step: int = -1
    of_generation: int = 0
    first: int = delta.BEFORE

    @classmethod
    def of(cls, table: DeltaTable | None) -> Self:
        """The state that an open table of changes records."""
        return cls(**numbers_named(table, cls.__annotations__))

    @property
    def watermark(self) -> datetime | None:
        """The watermark up to which the first results are whole; None before there is one."""
        return optional_instant(None if self.closed == NOTHING_CLOSED else self.closed)


@dataclass(frozen=True)
class Corrected:
    """The `corrected` results of some `days`, each of which stands for the one of the same key, or is `_retracted`.

    `appended` are first results since, for some of which a corrected one may stand. Both have the columns of a result.
    """

    days: frozenset[date]
    corrected: pa.Table
    appended: pa.Table


class Look(ABC):
    """Current results as the tables of an operator had them at one moment.

    `columns` are those of a result, and its day.
    """

    columns: StructType

    @abstractmethod
    def seen(self, before: ChangePosition) -> ChangePosition:
        """The state that follows from the tables as they are, where it was `before`; equal to it if nothing is new."""

    @abstractmethod
    def days(self, spark: SparkSession, before: ChangePosition) -> frozenset[date] | None:
        """The days on which a result may have changed since; None for all of them."""

    @abstractmethod
    def rows(self, spark: SparkSession, at: ChangePosition | None = None) -> DataFrame:
        """The columns of a result, `_day` and `_reason`: one row for each result that is current, or was `at` a state.

        The state must be of the generation that the tables are of.
        """

    def appended(self, before: ChangePosition, most: int) -> pa.Table | None:
        """The columns of a result and `_day` of those that are new, where nothing that was current changes.

        Starts no Spark. None where it cannot tell without, or there are more rows than `most`.
        """
        return None

    def appended_portions(self, before: ChangePosition) -> Iterator[pa.Table] | None:
        """As `appended`, however many there are, a portion after the other; None where it cannot tell without Spark."""
        return None

    def signed(self, before: ChangePosition, most: int) -> pa.Table | None:
        """The columns of a result, `_day`, `_change` and `_reason` of those that are there since, or are not any more.

        Starts no Spark. None where it cannot tell without, or there are more rows than `most`.
        """
        return None

    def corrected(self, before: ChangePosition, most: int) -> Corrected | None:
        """The results that were corrected or added since, where that is all that has changed.

        Starts no Spark. None where it cannot tell without, or there are more rows than `most`.
        """
        return None


@by_kind
def look_at(operator: Operator, lake: Lake) -> Look | None:
    """The results of an operator as they are now; None while there are none.

    `look_at.register` adds a kind of operator whose results are corrected.
    """
    raise DeclarationError(
        f"operator {operator.name!r} is a {type(operator).__name__}, of which nothing here can tell what is current; "
        "register a Look for that type with `look_at.register`."
    )


class _LookAtCorrected(Look, Generic[Corrects]):
    """First results, updates and corrections of an operator, as its tables had them at one moment."""

    def __init__(self, lake: Lake, pinned: PinnedTables[Corrects], columns: tuple[str, ...]) -> None:
        self._lake = lake
        self._operator = pinned.operator
        self._versions = pinned.versions
        self._first = delta.opened(lake.table(pinned.operator), pinned.versions[""])
        self._progress = Progress.of(pinned.operator, self._first)
        self.columns = _columns_of(self._first, columns)

    def seen(self, before: ChangePosition) -> ChangePosition:
        closed = optional_micros(self._progress.watermark)
        return ChangePosition(
            revision=before.revision,
            closed=NOTHING_CLOSED if closed is None else closed,
            corrections=self._versions[CORRECTIONS],
            of_generation=self._progress.generation,
            first=self._versions[""],
        )

    def appended(self, before: ChangePosition, most: int) -> pa.Table | None:
        new = self._appended_files(before)
        return None if new is None else read_at_most(self._first, new, self.columns.names, most)

    def _appended_files(self, before: ChangePosition) -> pa.Table | None:
        """The files with what is new, where nothing that was current changes; None where it cannot tell."""
        unlooked = before.revision < 0
        if before.of_generation != self._progress.generation and not unlooked:
            return None
        corrected = self._corrected_days()
        if (unlooked and corrected) or not self._is_uncorrected_since(before):
            return None
        new = delta.appended_files(self._first, before.first)
        if new is None or (corrected and not self._have_nothing_in_common(new, corrected)):
            return None
        return new

    def _is_uncorrected_since(self, before: ChangePosition) -> bool:
        """True if nothing but first results came since."""
        return before.revision < 0 or self._versions[CORRECTIONS] == before.corrections

    def _corrected_days(self) -> set[date]:
        """The days that anything but first results is of."""
        return days_of(self._lake.table(self._operator, CORRECTIONS), self._versions[CORRECTIONS])

    def _have_nothing_in_common(self, new: pa.Table, corrected: set[date]) -> bool:
        """True if no correction can stand for a result in one of the `new` files."""
        return not new.num_rows or corrected.isdisjoint(new[f"partition.{DAY}"].to_pylist())

    def _anew(self, before: ChangePosition) -> bool:
        """True if any result may have changed, because nothing was told yet or the operator was built anew."""
        anew = before.revision < 0 or before.closed == NOTHING_CLOSED
        return anew or before.of_generation != self._progress.generation

    def _corrected_since(self, before: ChangePosition) -> set[date]:
        """The days that were corrected since."""
        uri, version = self._lake.table(self._operator, CORRECTIONS), self._versions[CORRECTIONS]
        return _corrected_since(before.corrections, delta.open_table(uri, version))

    def _first_rows(self, spark: SparkSession) -> DataFrame:
        return delta.read(spark, self._lake.table(self._operator), self._versions[""])


class _LookAtWindows(_LookAtCorrected[OverWindows]):
    def seen(self, before: ChangePosition) -> ChangePosition:
        operator = self._operator
        through = updated_through(self._lake, operator, self._updates_version) if operator.updated else -1
        return replace(super().seen(before), updates=through)

    def days(self, spark: SparkSession, before: ChangePosition) -> frozenset[date] | None:
        """A session may become one with those of other days."""
        operator = self._operator
        if operator.window.merging or self._anew(before):
            return None
        since = operator.window.closed_by(from_micros(before.closed))
        days = _days_in(self._first_rows(spark).where(F.col("window_end") > literal(since)))
        updates = read_updates(spark, self._lake, operator, self._updates_version)
        if updates is not None:
            days |= _days_in(updates.where(F.col("_batch") > before.updates))
        return frozenset(days | self._corrected_since(before))

    def rows(self, spark: SparkSession, at: ChangePosition | None = None) -> DataFrame:
        operator, lake, first = self._operator, self._lake, self._first_rows(spark)
        updates = read_updates(spark, lake, operator, self._updates_version)
        corrections_at = self._versions[CORRECTIONS] if at is None else at.corrections
        if at is not None:
            closed = None if at.watermark is None else operator.window.closed_by(at.watermark)
            first = first.where(F.lit(False) if closed is None else F.col("window_end") <= literal(closed))
            updates = None if updates is None else updates.where(F.col("_batch") <= at.updates)
        corrections = read_corrections(spark, lake, operator, corrections_at)
        return current_with_reasons(first, corrections, operator, updates, parted_from(lake, operator))

    def appended_portions(self, before: ChangePosition) -> Iterator[pa.Table] | None:
        new = self._appended_files(before)
        return None if new is None else portions_of(self._first, new, self.columns.names)

    def corrected(self, before: ChangePosition, most: int) -> Corrected | None:
        operator = self._operator
        if operator.window.merging or not operator.result_key or self._anew(before) or self._updates_since(before):
            return None
        appended = delta.appended_rows(self._first, before.first, self.columns.names, most)
        table = delta.open_table(self._lake.corrections(operator), self._versions[CORRECTIONS])
        if appended is None or table is None:
            return None
        added = {*appended[DAY].unique().to_pylist()}
        days = self._corrected_since(before) | (added & super()._corrected_days())
        updated = days_of(self._lake.updates(operator), self._updates_version)
        if updated & (days | added) or rows_on(table, days) > most:
            return None
        return Corrected(frozenset(days), contents_on(table, days, [*self.columns.names, RETRACTED]), appended)

    def _is_uncorrected_since(self, before: ChangePosition) -> bool:
        return super()._is_uncorrected_since(before) and self._updates_since(before) == 0

    def _updates_since(self, before: ChangePosition) -> int:
        table = delta.open_table(self._lake.updates(self._operator), self._updates_version)
        return 0 if table is None else delta.contents(table, [("_batch", ">", before.updates)], ["_batch"]).num_rows

    def _corrected_days(self) -> set[date]:
        return super()._corrected_days() | days_of(self._lake.updates(self._operator), self._updates_version)

    def _have_nothing_in_common(self, new: pa.Table, corrected: set[date]) -> bool:
        # A session of one day may be part of a corrected one of another.
        return not self._operator.window.merging and super()._have_nothing_in_common(new, corrected)

    @property
    def _updates_version(self) -> int:
        return self._versions.get(UPDATES, delta.BEFORE)


class _LookAtKeyed(_LookAtCorrected[Keyed]):
    def appended(self, before: ChangePosition, most: int) -> pa.Table | None:
        rows = super().appended(before, most)
        # Of the very instant up to which the last look was whole, a result may be there twice.
        if rows is None or before.watermark is None or not rows.num_rows:
            return rows
        return rows if pc.min(rows[AT]).as_py() > before.watermark else None

    def days(self, spark: SparkSession, before: ChangePosition) -> frozenset[date] | None:
        if self._anew(before):
            return None
        # No step emits anything for a time that the clock had passed before it.
        new = _days_in(self._first_rows(spark).where(F.col(AT) >= literal(from_micros(before.closed))))
        return frozenset(new | self._corrected_since(before))

    def rows(self, spark: SparkSession, at: ChangePosition | None = None) -> DataFrame:
        operator, lake = self._operator, self._lake
        first_at, corrections_at = (
            (self._versions[""], self._versions[CORRECTIONS]) if at is None else (at.first, at.corrections)
        )
        first = delta.read(spark, lake.table(operator), first_at)
        corrections = keyed.read_corrections(spark, lake, operator, "", corrections_at)
        current = keyed.current_results(first, corrections, operator)
        reason = F.when(F.col("_corrected"), "correction").otherwise("first").alias(REASON)
        return current.select(*current.columns, reason).drop("_corrected")


class _LookAtJoin(Look):
    def __init__(self, lake: Lake, operator: Joined, versions: Mapping[str, int]) -> None:
        self._lake = lake
        self._operator = operator
        self._versions = versions
        own = delta.opened(lake.table(operator), versions[""])
        self._progress = Progress.of(operator, own)
        self.columns = _columns_of(own, operator.columns)

    def seen(self, before: ChangePosition) -> ChangePosition:
        closed = optional_micros(self._progress.watermark)
        return ChangePosition(
            revision=before.revision,
            closed=NOTHING_CLOSED if closed is None else closed,
            step=self._progress.batch,
            of_generation=self._progress.generation,
            first=self._versions[""],
        )

    def days(self, spark: SparkSession, before: ChangePosition) -> frozenset[date] | None:
        if before.revision < 0 or before.of_generation != self._progress.generation:
            return None
        pairs, unmatched = self._read(spark, self._progress.batch)
        new = F.col("_batch") > before.step
        voided = voided_rows(pairs.where(new), unmatched, self._operator.outer_sides)
        parts = [pairs.where(new), unmatched.where(new), voided]
        return frozenset(_days_in(reduce(DataFrame.unionByName, parts)))

    def rows(self, spark: SparkSession, at: ChangePosition | None = None) -> DataFrame:
        pairs, unmatched = self._read(spark, self._progress.batch if at is None else at.step)
        sides = self._operator.outer_sides
        return with_reasons(current_rows(pairs, unmatched, sides), unmatched, sides)

    def _read(self, spark: SparkSession, step: int) -> tuple[DataFrame, DataFrame]:
        """Pairs and rows without one of all steps up to this one; of a step, rows without a pair are written first."""
        lake, joined = self._lake, self._operator
        pairs, unmatched = (
            delta.read(spark, lake.table(joined, suffix), self._versions[suffix]).where(F.col("_batch") <= step)
            for suffix in ("", UNMATCHED)
        )
        return pairs, unmatched


class LookAtSigned(Look, Generic[Corrects]):
    """Results as an operator adds them and takes them back in its own table, of which `standing` makes those there."""

    def __init__(self, lake: Lake, operator: Corrects, standing: Callable[[DataFrame, Corrects], DataFrame]) -> None:
        self._lake = lake
        self._operator = operator
        self._standing = standing
        self._own = delta.opened(lake.table(operator), PinnedTables.now(lake, operator).versions[""])
        self._progress = Progress.of(operator, self._own)
        self.columns = _columns_of(self._own, operator.columns)

    def seen(self, before: ChangePosition) -> ChangePosition:
        at = self._progress
        # None is followed whose first result nobody could tell.
        closed = optional_micros(at.watermark if self._operator.first_begin(at.watermark) is not None else None)
        return ChangePosition(
            revision=before.revision,
            closed=NOTHING_CLOSED if closed is None else closed,
            step=at.batch,
            of_generation=self._progress.generation,
            first=self._own.version(),
        )

    def days(self, spark: SparkSession, before: ChangePosition) -> frozenset[date] | None:
        if before.revision < 0 or before.of_generation != self._progress.generation:
            return None
        return frozenset(_days_in(self._rows(spark).where(F.col(BATCH) > before.step)))

    def rows(self, spark: SparkSession, at: ChangePosition | None = None) -> DataFrame:
        rows = self._rows(spark)
        standing = self._standing(rows if at is None else rows.where(F.col(BATCH) <= at.step), self._operator)
        return standing if REASON in standing.columns else standing.withColumn(REASON, F.lit("first"))

    def _signed_since(
        self, before: ChangePosition, most: int, identity: str, *more: str, are_net: bool = False
    ) -> pa.Table | None:
        """The rows since, as `signed` gives them, with a column that tells apart those with the same values in `more`.

        What was added and taken back again since is not among them; it is not looked for where they `are_net`.
        """
        if before.revision < 0 or before.of_generation != self._progress.generation:
            return None
        names = [*self.columns.names, identity, SIGN, REASON]
        rows = delta.appended_rows(self._own, before.first, names, most)
        if rows is None or are_net:
            return rows
        net, newest = Counter[str](), dict[tuple[str, int], int]()
        same = rows_as_texts(rows, [*more, identity])
        for place, (row, sign) in enumerate(zip(same, rows[SIGN].to_pylist(), strict=True)):
            net[row] += sign
            newest[row, sign] = place
        places = [newest[row, sign] for row, sign in net.items() if sign]
        return rows.take(pa.array(sorted(places), pa.int64()))

    def _rows(self, spark: SparkSession) -> DataFrame:
        return delta.read(spark, self._lake.table(self._operator), self._own.version())


class _LookAtHistory(LookAtSigned[History]):
    """Intervals, which a key tells apart, so that what was added and taken back is told as it is."""

    def signed(self, before: ChangePosition, most: int) -> pa.Table | None:
        # A batch adds no interval that it takes back.
        is_one_batch = self.seen(before).step == before.step + 1
        rows = self._signed_since(before, most, ADDED, are_net=is_one_batch)
        # Those that tell of a forgotten revision neither add an interval nor take one back.
        return None if rows is None else rows.filter(pc.not_equal(rows[SIGN], 0)).drop_columns([ADDED])


@look_at.register
def _(operator: OverWindows, lake: Lake) -> Look | None:
    pinned = pinned_windows(lake, operator)
    return None if pinned.versions[""] == delta.BEFORE else _LookAtWindows(lake, pinned, operator.columns)


@look_at.register
def _(operator: Keyed, lake: Lake) -> Look | None:
    pinned = PinnedTables.now(lake, operator)
    return None if pinned.versions[""] == delta.BEFORE else _LookAtKeyed(lake, pinned, operator.columns)


@look_at.register
def _(operator: Joined, lake: Lake) -> Look | None:
    versions = PinnedTables.now(lake, operator).versions
    if operator.signed and versions[""] != delta.BEFORE:
        return LookAtSigned(lake, operator, standing_pairs)
    return None if delta.BEFORE in versions.values() else _LookAtJoin(lake, operator, versions)


@look_at.register
def _(operator: History, lake: Lake) -> Look | None:
    return _LookAtHistory(lake, operator, intervals_of) if delta.exists(lake.table(operator)) else None


@look_at.register
def _(operator: Selected, lake: Lake) -> Look | None:
    return LookAtSigned(lake, operator, selected_rows) if delta.exists(lake.table(operator)) else None


def rows_as_texts(rows: pa.Table, columns: Iterable[str]) -> list[str]:
    """The values of each row as a text, whatever they are; it is the same for rows that have the same ones, NaN too."""
    return [repr(row) for row in zip(*(python_values(rows[name]) for name in columns), strict=True)]


def _columns_of(own: DeltaTable, names: Sequence[str]) -> StructType:
    """These columns of an operator's own table, which is open, and the day.

    One that was declared since the last step is not there yet.
    """
    there = {field.name: field for field in delta.columns_of(own)}
    return StructType([there[name] for name in (*names, DAY) if name in there])


def _corrected_since(version: int, table: DeltaTable | None) -> set[date]:
    """The days that were corrected after a version of an open table of corrections."""
    commits = () if table is None else newest_commits(table)
    newer = takewhile(lambda commit: commit["version"] > version, commits)
    metadata = [commit["userMetadata"] for commit in newer if isinstance(commit["userMetadata"], dict)]
    days = [day for each in metadata if isinstance(each.get("through"), dict) for day in each["through"]]
    return {date.fromisoformat(day) for day in days}


def _days_in(frame: DataFrame) -> set[date]:
    return {row[0] for row in frame.select(DAY).distinct().collect()}
