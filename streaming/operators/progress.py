"""The progress of a table in each of the logs that its operator follows, and its generation: the table records both.

They are kept as numbers of the table, each the version of a Delta transaction (see `delta.Staged.commit`). So is the
progress of each day's correction, in the table of corrections.

When an operator is built anew, `switching` puts the new tables in place of the old ones, one commit for each table: the
operator's own is the last, and makes the new generation the one that is read. Until then its other tables, which are
replaced by then, are read at their last version of the old generation.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import Self

from deltalake import DeltaTable

from streaming.base import (
    FencedError,
    FrozenMapping,
    OperatorError,
    counted,
    optional_instant,
    to_micros,
    told,
)
from streaming.clocks import joint_watermark
from streaming.declare import ExternalTable, Operator
from streaming.lake import Lake
from streaming.log import Batch, head
from streaming.tables import delta, numbers_named

GENERATION = "generation"
"""The number that holds the generation of a table."""

SUPERSEDED = "superseded"
"""The number that holds the last Delta version of a table in the generation before."""

GONE = "gone"
"""The number that is 1 if the operator has no such table any more in this generation."""

BEFORE_PREFIX = "before."
"""The prefix of the numbers of the table that a table which was built anew has replaced."""

CONTINUES_PREFIX = "continues."
"""The prefix of the numbers that a table which was built anew had itself when it had followed as much as that one."""

FORGOTTEN = -1
"""The value of a number that only an older generation had, because Delta removes no number from a table."""

BORN = "tidemark.generation"
"""The property that holds the generation in which a table was created, if that is not the first."""

_KEPT_DAYS, _OLD_KEPT_DAYS = "tidemark.kept.{}", "tidemark.kept"
"""The property of each generation that holds the days of which it keeps the numbers; before, one of the last one."""

_THROUGH, _WATERMARK = "through.{}", "watermark.{}"
"""The numbers of each stream: the newest batch of its log that is followed, and the watermark after it."""

REVISION_OF = "revision.{}"
"""The number of each operator of which the table's own reads what is current: the newest revision that is followed.

Of an external table it tells which version of which table that is.
"""

NEWEST_BATCH, _ROWS_IN, _KEPT = "batch", "rows_in", "kept"
"""The numbers that hold `Progress.batch` and the two of `FilterCounts`."""

_OLD_THROUGH, _OLD_WATERMARK, _OLD_WATERMARK_OF = "through", "closed", "closed.{}"
"""The names of these numbers before 0.2 in tables of views and keyed functions; the last one is for several streams."""

_CORRECTED, _CLOCK = "corrected.{}.{}", "corrected_clock.{}"
"""The numbers of each day that is corrected: the batch of each stream's log, and the joint clock by then."""

_OLD_CORRECTED = "corrected.{}"
"""The name that versions before 0.2 gave it in tables of views."""


def generation_of(table: DeltaTable | None) -> int:
    """The number of times that an open table was replaced by one that was built anew; 0 where there is no table."""
    if table is None:
        return 0
    return _generation(table, table.transaction_version(GENERATION))


def _generation(table: DeltaTable, number: int | None) -> int:
    return int(table.metadata().configuration.get(BORN, 0)) if number is None else number


def kept_days(table: DeltaTable | None) -> set[date]:
    """The days that an open table of first results keeps as they are published; none once the view was built anew."""
    if table is None:
        return set()
    properties, generation = table.metadata().configuration, generation_of(table)
    text = properties.get(_KEPT_DAYS.format(generation))
    older = json.loads(properties.get(_OLD_KEPT_DAYS) or "{}")
    days = json.loads(text) if text else older["days"] if older.get("of") == generation else []
    return {date.fromisoformat(day) for day in days}


def property_of_kept(days: Iterable[date], generation: int) -> dict[str, str]:
    """The property by which a table keeps the numbers of `days` in one generation."""
    return {_KEPT_DAYS.format(generation): json.dumps([day.isoformat() for day in sorted(days)])}


def last_superseded(table: DeltaTable) -> int:
    """The last version of an open table that is of an older generation; `delta.BEFORE` where there is none."""
    number = table.transaction_version(SUPERSEDED)
    return delta.BEFORE if number is None else number


def open_beside(own: DeltaTable | None, uri: str) -> DeltaTable | None:
    """Another table of the operator, at the newest version of the generation of `own`, the operator's own table.

    None where this generation has no such table. Between the commits of a switch the other table may be of the next
    generation already.
    """
    table = delta.open_table(uri)
    if table is None:
        return None
    if generation_of(table) > generation_of(own):
        return delta.open_table(uri, table.transaction_version(SUPERSEDED) or 0)
    return None if is_gone(table) else table


@dataclass(frozen=True)
class Replaced:
    """A number of a table that was built anew: its value in the table before, and in this one at the same progress.

    `before` is the last value in the table that was replaced. `continues` is the value in the new table when it had
    followed as much as that one, so rows after it come after those of the old table. None where it had no such number.
    """

    before: int | None
    continues: int | None

    @classmethod
    def of(cls, table: DeltaTable, number: str) -> Self | None:
        """The `number`, by its name, of an open table; None where it was never as far as the table that it replaced."""
        generation = table.transaction_version(f"{CONTINUES_PREFIX}{GENERATION}")
        if generation is None or generation != generation_of(table):
            return None
        before = table.transaction_version(f"{BEFORE_PREFIX}{number}")
        continues = table.transaction_version(f"{CONTINUES_PREFIX}{number}")
        return cls(None if before == FORGOTTEN else before, None if continues == FORGOTTEN else continues)


def is_gone(table: DeltaTable) -> bool:
    """True if an open table has no rows in its generation, and is only kept for readers of the one before."""
    return table.transaction_version(GONE) == 1


def open_side(lake: Lake, operator: Operator, suffix: str, version: int | None = None) -> DeltaTable | None:
    """A table of the operator beside its own, by its `suffix`; None where it is not there.

    At one Delta `version`, or the newest that goes with its own table now, as `open_beside` says.
    """
    uri = lake.table(operator, suffix)
    if version is not None:
        return delta.open_table(uri, version)
    return open_beside(delta.open_table(lake.table(operator)), uri)


def require_table(lake: Lake, operator: Operator, suffix: str) -> DeltaTable:
    """The operator's own table, with the suffix "", or one beside it as `open_side` finds it.

    Raises:
        OperatorError: it is not there yet.
    """
    table = open_side(lake, operator, suffix) if suffix else delta.open_table(lake.table(operator))
    if table is None:
        raise OperatorError(
            f"{operator.kind_name} {operator.name!r} has no table {lake.table(operator, suffix)!r} yet; run "
            f"`tidemark run {operator.folder}` first, or point TIDEMARK_HOME to the lake that has it."
        )
    return table


def versions_now(lake: Lake, operator: Operator, *others: str) -> dict[str, int]:
    """The versions of its tables, and of those with the suffixes `others`, that go together now, by suffix.

    `delta.BEFORE` for a table that is not there.
    """
    own = delta.open_table(lake.table(operator))
    suffixes = dict.fromkeys((*(spec.suffix for spec in operator.tables), *others))
    tables = {suffix: open_beside(own, lake.table(operator, suffix)) if suffix else own for suffix in suffixes}
    return {suffix: delta.BEFORE if table is None else table.version() for suffix, table in tables.items()}


def built_anew(generation: int) -> str:
    """The end of a text about a table's progress: `; built anew 2 times`, nothing for the first generation."""
    return f"; built anew {counted(generation, 'time')}" if generation else ""


@dataclass(frozen=True)
class FilterCounts:
    """The counts of a business filter: `rows_in` rows came to it, and it `kept` so many.

    Of a row that is exploded, each element counts as a row.
    """

    rows_in: int = 0
    kept: int = 0

    @property
    def removed(self) -> int:
        """The number of rows that the filter did not keep."""
        return self.rows_in - self.kept

    def __add__(self, other: FilterCounts) -> FilterCounts:
        return FilterCounts(self.rows_in + other.rows_in, self.kept + other.kept)


def filter_counts(lake: Lake, operator: Operator) -> dict[str, FilterCounts]:
    """The counts of the operator's filters since its tables were built, by suffix of the table each fills."""
    own = delta.open_table(lake.table(operator))
    if own is None:
        return {}
    tables = {to: open_side(lake, operator, to) if to else own for to in operator.filters}
    return {to: Progress.of(operator, table).counts for to, table in tables.items()}


@dataclass(frozen=True)
class Progress:
    """The point up to which a table of an operator has followed the logs.

    `through`: by stream, the newest batch of its log that is followed; -1 where none is. `watermarks`: by stream, the
    watermark after that batch, None before there is one. `batch`: the newest number of the table's own sequence, which
    over one stream is that of the log's batches, and over several counts the steps. `counts`: those of the table's
    filter. `generation`: see `generation_of`.
    """

    through: Mapping[str, int] = field(default_factory=lambda: FrozenMapping({}))
    watermarks: Mapping[str, datetime | None] = field(default_factory=lambda: FrozenMapping({}))
    batch: int = -1
    counts: FilterCounts = field(default_factory=FilterCounts)
    generation: int = 0

    @classmethod
    def of(cls, operator: Operator, table: DeltaTable | None) -> Self:
        """The progress that an open table of the operator records; where there is no table, nothing is followed yet."""
        streams = [stream.name for stream in operator.follows]
        alone = len(streams) == 1
        own = (*map(_THROUGH.format, streams), *map(_WATERMARK.format, streams), NEWEST_BATCH, _ROWS_IN, _KEPT)
        numbers = numbers_named(table, (*own, GENERATION))

        def number(name: str, *older: str) -> int | None:
            return numbers[name] if name in numbers else first_number(table, *older)

        through = {name: number(_THROUGH.format(name), *([_OLD_THROUGH] if alone else [])) for name in streams}
        marks = {
            name: number(_WATERMARK.format(name), _OLD_WATERMARK if alone else _OLD_WATERMARK_OF.format(name))
            for name in streams
        }
        batch = number(NEWEST_BATCH, *([_THROUGH.format(streams[0]), _OLD_THROUGH] if alone else []))
        return cls(
            FrozenMapping({name: -1 if newest is None else newest for name, newest in through.items()}),
            FrozenMapping({name: optional_instant(mark) for name, mark in marks.items()}),
            -1 if batch is None else batch,
            FilterCounts(number(_ROWS_IN) or 0, number(_KEPT) or 0),
            0 if table is None else _generation(table, numbers.get(GENERATION)),
        )

    @classmethod
    def now(cls, lake: Lake, operator: Operator) -> Self:
        """The progress that the operator's own table records now."""
        return cls.of(operator, delta.open_table(lake.table(operator)))

    @classmethod
    def at_heads(cls, lake: Lake, operator: Operator, logs: Mapping[str, int] | None = None) -> Self:
        """The progress of a table that has followed all batches of the logs, at Delta versions by stream or the newest.

        Over several streams its `batch` means nothing, as no steps were taken.
        """
        versions = logs or {}
        newest = {stream.name: head(lake, stream, versions.get(stream.name)) for stream in operator.follows}
        return cls.of(operator, None).after({name: [batch] for name, batch in newest.items() if batch is not None})

    @classmethod
    def as_read(cls, lake: Lake, operator: Operator) -> Self:
        """The operator's progress for a reader of the lake: at a cut of the logs, it has followed all up to the cut."""
        return cls.now(lake, operator) if lake.cut is None else cls.at_heads(lake, operator)

    @property
    def watermark(self) -> datetime | None:
        """The watermark of the joint clock: the least of the streams' watermarks, None while one of them has none."""
        return joint_watermark(self.watermarks.values())

    @property
    def has_begun(self) -> bool:
        """True if any batch was followed."""
        return any(number >= 0 for number in self.through.values())

    def is_behind(self, other: Progress) -> bool:
        """True if `other` has followed a batch that is not followed here."""
        return any(self.through[name] < number for name, number in other.through.items())

    def after(self, batches: Mapping[str, Sequence[Batch]]) -> Self:
        """The progress once these `batches`, by stream, are followed as well; it never goes back."""
        newest = {name: each[-1] for name, each in batches.items() if each and each[-1].number > self.through[name]}
        through = FrozenMapping({**self.through, **{name: batch.number for name, batch in newest.items()}})
        marks = {name: batch.after.watermark for name, batch in newest.items()}
        return replace(
            self,
            through=through,
            watermarks=FrozenMapping({**self.watermarks, **marks}),
            batch=max(through.values()) if len(through) == 1 else self.batch + 1,
        )

    def numbers(self) -> dict[str, int]:
        """The numbers by which a table keeps this progress, watermarks in microseconds since the epoch."""
        through = {_THROUGH.format(name): number for name, number in self.through.items()}
        marks = {_WATERMARK.format(name): to_micros(mark) for name, mark in self.watermarks.items() if mark is not None}
        counts = {_ROWS_IN: self.counts.rows_in, _KEPT: self.counts.kept}
        generation = {GENERATION: self.generation} if self.generation else {}
        return {**through, **marks, NEWEST_BATCH: self.batch, **counts, **generation}

    def told_from(self, before: Self) -> dict[str, object]:
        """The metadata of a step's commit that says `through` which batches it goes, and `after` which it began."""
        if len(self.through) == 1:
            return {"through": max(self.through.values()), "after": max(before.through.values())}
        return {"through": dict(self.through), "after": dict(before.through)}

    def fence(self, operator: Operator, table: DeltaTable) -> None:
        """Refuse a step that begins at this progress where the open table has another one by now.

        Raises:
            FencedError: another process has taken over.
        """
        there = Progress.of(operator, table)
        if there != self:
            raise moved_on(operator, self._distinct_from(there), there._distinct_from(self))

    def _distinct_from(self, other: Progress) -> str:
        """The progress in words, with a part in which it differs from `other`."""
        if str(self) != str(other):
            return str(self)
        if self.generation != other.generation:
            return f"{self} of generation {self.generation}"
        if self.watermarks != other.watermarks:
            return f"{self} with the watermark {' and '.join(map(told, self.watermarks.values()))}"
        return f"{self} with number {self.batch} and {self.counts.kept:,} of {self.counts.rows_in:,} rows"

    def __str__(self) -> str:
        if len(self.through) == 1:
            return f"batch {max(self.through.values()):,}"
        return " and ".join(f"batch {number:,} of {name}" for name, number in self.through.items())


@dataclass(frozen=True)
class PendingDay:
    """A day whose late pairs are newer than its correction.

    `late_pairs` counts all pairs of the day, `newest_batch` the latest batch that brought one, `through_batch` the
    batch up to which the stored correction goes (null where there is none).
    """

    day: date
    late_pairs: int
    newest_batch: int
    through_batch: int | None


@dataclass(frozen=True)
class Corrected:
    """The point to which a day is corrected: the batch of each stream's log, -1 for none, and the joint clock then."""

    through: Mapping[str, int]
    watermark: datetime | None

    @property
    def has_begun(self) -> bool:
        """True if the day was ever corrected."""
        return any(number >= 0 for number in self.through.values())

    @classmethod
    def of(cls, operator: Operator, day: date, table: DeltaTable | None) -> Corrected:
        """The point to which the day is corrected, as an open table of corrections records it."""
        text, streams = day.isoformat(), [stream.name for stream in operator.follows]
        old = [_OLD_CORRECTED.format(text)] if len(streams) == 1 else []
        through = {name: first_number(table, _CORRECTED.format(text, name), *old) for name in streams}
        return cls(
            {name: -1 if batch is None else batch for name, batch in through.items()},
            optional_instant(first_number(table, _CLOCK.format(text))),
        )

    def lacks(self, newest: Mapping[str, int]) -> str | None:
        """The stream of whose log it lacks most batches up to the `newest`; None where it lacks none."""
        lacking = {name: number - self.through[name] for name, number in newest.items()}
        most = max(lacking, key=lambda name: lacking[name], default=None)
        return most if most is not None and lacking[most] > 0 else None

    def pending(self, day: date, late_pairs: int, newest: Mapping[str, int]) -> PendingDay | None:
        """The day, if it lacks batches up to the `newest`, by the numbers of the log of which it lacks most."""
        behind = self.lacks(newest)
        if behind is None:
            return None
        through = self.through[behind]
        return PendingDay(day, late_pairs, newest[behind], None if through < 0 else through)


def corrected_numbers(day: date, at: Progress) -> dict[str, int]:
    """The numbers that the table keeps of a day that is corrected up to `at`."""
    through = {_CORRECTED.format(day.isoformat(), name): number for name, number in at.through.items()}
    return through if at.watermark is None else through | {_CLOCK.format(day.isoformat()): to_micros(at.watermark)}


def revision_followed(table: DeltaTable | None, of: Operator | ExternalTable) -> int:
    """The newest revision of what is current of an operator that an open table has followed; -1 for none.

    Of an external table the number of its version.
    """
    number = first_number(table, REVISION_OF.format(of.name))
    return -1 if number is None else number


def first_number(table: DeltaTable | None, *names: str) -> int | None:
    """The number that an open table keeps under the first of these `names` that it has; None for none, or no table."""
    numbers = (None if table is None else table.transaction_version(name) for name in names)
    return next((each for each in numbers if each is not None), None)


def moved_on(operator: Operator, before: str, there: str) -> FencedError:
    """The error of a process that left the operator's table at `before` and finds it `there`; both are in words."""
    return FencedError(
        f"{operator.kind_name} {operator.name!r} was at {before} and is at {there} now, so another process has taken "
        "over while this one was away. Nothing is lost; let the other one run, or stop it and start again (`tidemark "
        f"status {operator.folder}` names it)."
    )
