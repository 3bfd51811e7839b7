"""The progress of a table in each of the logs that its operator follows, and its generation: the table records both.

The tables of an operator that was built anew take the place of the old ones all at once. The commit that replaces the
operator's own table is the one that counts. Its other tables are replaced before, and until then they are read at the
version that goes with the old generation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Self

from deltalake import DeltaTable

from streaming.base import FencedError, FrozenMapping, OperatorError, counted, optional_instant, to_micros, told
from streaming.clocks import joint_watermark
from streaming.declare import Operator
from streaming.lake import Lake
from streaming.log import Batch, head
from streaming.tables import delta

GENERATION, SUPERSEDED, GONE = "generation", "superseded", "gone"
"""Numbers that a table keeps: its generation, its last version of the one before, 1 if this one has no such table."""

BEFORE, CONTINUES = "before.", "continues."
"""Beginnings of the names of numbers that a table which was built anew keeps: those of the table that it replaced, and
its own when it had followed as much as that one."""

FORGOTTEN = -1
"""The value that replaces a number of an older generation, which no table can be without again."""

BORN = "tidemark.generation"
"""The property of a table that was created in a later generation than the first."""
_THROUGH, _WATERMARK, NEWEST_BATCH, _ROWS_IN, _KEPT = "through.{}", "watermark.{}", "batch", "rows_in", "kept"
"""The names of the numbers that a table keeps; the first two are of each stream."""
_OLD_THROUGH, _OLD_WATERMARK, _OLD_WATERMARK_OF = "through", "closed", "closed.{}"
"""Names that versions before 0.2 gave them in tables of views and keyed functions, of one stream and of several."""


def generation_of(table: DeltaTable | None) -> int:
    """The number of times an open table was replaced by one that was built anew; 0 also where there is none."""
    if table is None:
        return 0
    number = table.transaction_version(GENERATION)
    return int(table.metadata().configuration.get(BORN, 0)) if number is None else number


def open_beside(own: DeltaTable | None, uri: str) -> DeltaTable | None:
    """Another table of the operator as it goes with `own`, its own table; None where there is none."""
    table = delta.open_table(uri)
    if table is None:
        return None
    if generation_of(table) > generation_of(own):
        return delta.open_table(uri, table.transaction_version(SUPERSEDED) or 0)
    return None if is_gone(table) else table


@dataclass(frozen=True)
class Replaced:
    """A number of a table that was built anew: what it was `before`, and where the new table `continues` from there.

    Each is None where the table did not have the number by then.
    """

    before: int | None
    continues: int | None

    @classmethod
    def of(cls, table: DeltaTable, number: str) -> Self | None:
        """As an open table tells; None where it was never as far as the one that it replaced."""
        generation = table.transaction_version(f"{CONTINUES}{GENERATION}")
        if generation is None or generation != generation_of(table):
            return None
        before, continues = (table.transaction_version(f"{prefix}{number}") for prefix in (BEFORE, CONTINUES))
        return cls(*(None if value == FORGOTTEN else value for value in (before, continues)))


def is_gone(table: DeltaTable) -> bool:
    """True if an open table is only there for readers of the generation before."""
    return table.transaction_version(GONE) == 1


def open_side(lake: Lake, operator: Operator, suffix: str, version: int | None = None) -> DeltaTable | None:
    """A table of the operator beside its own: at one `version`, or the newest that goes with its own table now."""
    uri = lake.table(operator, suffix)
    if version is not None:
        return delta.open_table(uri, version)
    return open_beside(delta.open_table(lake.table(operator)), uri)


def require_table(lake: Lake, operator: Operator, suffix: str) -> DeltaTable:
    """The operator's own table, or one beside it, as they go together now.

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
    """The versions of its tables, and of those with the suffixes `others`, as they go together now, by suffix.

    `delta.BEFORE` for a table that is not there.
    """
    own = delta.open_table(lake.table(operator))
    suffixes = dict.fromkeys((*(spec.suffix for spec in operator.tables), *others))
    tables = {to: open_beside(own, lake.table(operator, to)) if to else own for to in suffixes}
    return {to: delta.BEFORE if table is None else table.version() for to, table in tables.items()}


def built_anew(generation: int) -> str:
    """The end of a text about a table's progress: `; built anew 2 times`, nothing for the first generation."""
    return f"; built anew {counted(generation, 'time')}" if generation else ""


@dataclass(frozen=True)
class FilterCounts:
    """`rows_in` came to the filter, `kept` went through; of a row that is exploded, each element comes to it."""

    rows_in: int = 0
    kept: int = 0

    @property
    def removed(self) -> int:
        """The number of rows that did not go through."""
        return self.rows_in - self.kept

    def __add__(self, other: FilterCounts) -> FilterCounts:
        return FilterCounts(self.rows_in + other.rows_in, self.kept + other.kept)


@dataclass(frozen=True)
class Progress:
    """The batches of each stream's log up to `through` are followed; -1 where none is.

    `watermarks`: each stream's after that batch, null before there is one. `batch` is the newest of the table's own
    sequence: of one stream that of its log, of several the number of the step. `counts`: what the table's filter did.
    """

    through: Mapping[str, int] = field(default_factory=lambda: FrozenMapping({}))
    watermarks: Mapping[str, datetime | None] = field(default_factory=lambda: FrozenMapping({}))
    batch: int = -1
    counts: FilterCounts = field(default_factory=FilterCounts)
    generation: int = 0

    @classmethod
    def of(cls, operator: Operator, table: DeltaTable | None) -> Self:
        """The progress that an open table records; nothing is followed where there is no table yet."""
        streams = [stream.name for stream in operator.follows]
        alone = len(streams) == 1
        number = partial(first_number, table)
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
            generation_of(table),
        )

    @classmethod
    def now(cls, lake: Lake, operator: Operator) -> Self:
        """The progress that the operator's own table records now."""
        return cls.of(operator, delta.open_table(lake.table(operator)))

    @classmethod
    def at_heads(cls, lake: Lake, operator: Operator, logs: Mapping[str, int] | None = None) -> Self:
        """Where a table is once it has followed all that is in the logs, at Delta versions by stream or the newest."""
        at = logs or {}
        newest = {stream.name: head(lake, stream, at.get(stream.name)) for stream in operator.follows}
        return cls.of(operator, None).after({name: [batch] for name, batch in newest.items() if batch is not None})

    @classmethod
    def as_read(cls, lake: Lake, operator: Operator) -> Self:
        """Where the operator is for whoever reads the lake, which at a cut of the logs has followed all of them."""
        return cls.now(lake, operator) if lake.cut is None else cls.at_heads(lake, operator)

    @property
    def watermark(self) -> datetime | None:
        """The joint clock: the least of the streams' watermarks, null while one of them has none."""
        return joint_watermark(self.watermarks.values())

    @property
    def has_begun(self) -> bool:
        """True if a batch is followed."""
        return any(number >= 0 for number in self.through.values())

    def is_behind(self, other: Progress) -> bool:
        """True if `other` has followed a batch that is not followed here."""
        return any(self.through[name] < number for name, number in other.through.items())

    def after(self, batches: Mapping[str, Sequence[Batch]]) -> Self:
        """Where the table is once it has followed these `batches`, by stream, as well; it never goes back."""
        newest = {name: each[-1] for name, each in batches.items() if each and each[-1].number > self.through[name]}
        through = FrozenMapping({**self.through, **{name: batch.number for name, batch in newest.items()}})
        marks = {name: batch.after.watermark for name, batch in newest.items()}
        return replace(
            self,
            through=through,
            watermarks=FrozenMapping({**self.watermarks, **marks}),
            batch=self.batch + 1 if len(through) > 1 else max(through.values()),
        )

    def numbers(self) -> dict[str, int]:
        """All of it as a table keeps it, watermarks in microseconds since the epoch."""
        through = {_THROUGH.format(name): number for name, number in self.through.items()}
        marks = {_WATERMARK.format(name): to_micros(mark) for name, mark in self.watermarks.items() if mark is not None}
        counts = {_ROWS_IN: self.counts.rows_in, _KEPT: self.counts.kept}
        generation = {GENERATION: self.generation} if self.generation else {}
        return {**through, **marks, NEWEST_BATCH: self.batch, **counts, **generation}

    def told_from(self, before: Self) -> dict[str, object]:
        """The facts that the commit of a step tells people: where it ends, and where it began."""
        if len(self.through) == 1:
            return {"through": max(self.through.values()), "after": max(before.through.values())}
        return {"through": dict(self.through), "after": dict(before.through)}

    def fence(self, operator: Operator, table: DeltaTable) -> None:
        """Refuse to write what follows from here where the table is elsewhere by now.

        Raises:
            FencedError: another process has taken over.
        """
        there = self.of(operator, table)
        if there != self:
            raise moved_on(operator, self._beside(there), there._beside(self))

    def _beside(self, other: Progress) -> str:
        """Where it is, with what tells it from `other`."""
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


def first_number(table: DeltaTable | None, *names: str) -> int | None:
    """The number that an open table keeps under the first of the `names` under which it has one."""
    numbers = (None if table is None else table.transaction_version(name) for name in names)
    return next((each for each in numbers if each is not None), None)


def moved_on(operator: Operator, before: str, there: str) -> FencedError:
    """The error of a process that has followed an operator up to `before` where its table is `there` by now."""
    return FencedError(
        f"{operator.kind_name} {operator.name!r} was at {before} and is at {there} now, so another process has taken "
        "over while this one was away. Nothing is lost; let the other one run, or stop it and start again (`tidemark "
        f"status {operator.folder}` names it)."
    )
