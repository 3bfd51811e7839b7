"""The contract of what a delivery reads: rows of a table in an order that nothing ever changes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime

from pyspark.sql import Column, DataFrame, SparkSession

from streaming.operators import comparable

UNIT = "_unit"
"""The column that numbers the unit of a row."""


@dataclass(frozen=True, order=True)
class Cursor:
    """A place between two rows: after all units below `unit`, and after the first `row` rows of that unit."""

    unit: int
    row: int = 0


class Outbox(ABC):
    """Rows in units, such as the batches of a log: once a unit can be read, no row ever comes to it.

    The order of rows within a unit follows from the rows alone, so that compaction, clean-up and a restart change no
    place of any row.
    """

    begin: int
    """The first unit."""

    of_log: bool = False
    """True if it reads rows of an event log, which may drop days once they are delivered."""

    order: tuple[Column | str, ...]
    """The order of the rows of a unit: no two of them may differ and be equal in it."""

    def order_of(self, rows: DataFrame) -> list[Column]:
        """The columns of `order`, by which Spark can sort the `rows`."""
        return [comparable(rows, each) if isinstance(each, str) else each for each in self.order]

    @abstractmethod
    def generation(self) -> int:
        """The number of times that the table was built anew: places in one generation mean nothing in another."""

    @abstractmethod
    def end(self, since: int) -> int:
        """All units below this one can be read, of which those before `since` were; `begin` where there is no table."""

    @abstractmethod
    def rows(self, spark: SparkSession, since: int, until: int) -> DataFrame:
        """The rows of the units in [since, until), with `_unit`, `_revision`, `_time`, and all that may be selected."""

    def piece(self, since: int, end: int, most: int) -> int:
        """The end of a piece of [since, end) with about `most` rows, so that a backlog is not read again and again."""
        return end

    def follow(self, spark: SparkSession, now: Callable[[], datetime]) -> None:
        """Bring what is read up to date, where it is derived from other tables."""
        return None

    def untold(self, spark: SparkSession) -> int:
        """The rows that `follow` would add now; writes nothing."""
        return 0

    def tell_again(self, spark: SparkSession, days: frozenset[date]) -> int | None:
        """Add everything that is there of some days once more; the unit that it follows before, or None where no unit
        can be added, and the rows that were delivered are to be read again."""
        return None

    def still_told(self, spark: SparkSession, rows: DataFrame) -> DataFrame:
        """Those of the `rows`, which were refused before, of which nothing newer was told since."""
        return rows

    def goes_on(self, at: Cursor, generation: int) -> Cursor:
        """The place in the table as it is now after which rows follow those before `at` in a `generation` of it.

        Raises:
            RedeliveryError: they cannot be told apart, or what was told cannot go on as the table is now.
        """
        return at

    def begin_anew(self, *, again: bool) -> None:
        """Another generation is meant: go on with what it changes, or `again` with all of it."""
        return None
