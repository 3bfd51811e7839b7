"""Business filters: a named read of the log that keeps some valid rows and counts those it removes."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streaming.base import check_condition, check_name
from streaming.declare import Stream
from streaming.log.read import valid


@dataclass(frozen=True)
class FilterCounts:
    """What a filter did: `rows_in` = `kept` + `removed`."""

    rows_in: int
    kept: int
    removed: int


@dataclass(frozen=True)
class Filter:
    """Keeps the valid rows of stream `of` for which the SQL condition `where` is true.

    A removed row is not rejected: it was judged, and it stays in the log. A row that cannot be judged, because a
    value is null, is the business of a `Rule` on the stream; without one it counts as removed.

    Raises:
        DeclarationError: the name is not allowed, or `where` reads an unknown column.
    """

    name: str
    of: Stream
    where: str

    def __post_init__(self) -> None:
        check_name("filter", self.name)
        check_condition(f"where of filter {self.name!r}", self.where, self.of.types)

    def rows(self, log: DataFrame) -> DataFrame:
        """The rows that are kept; `log` is a batch read of the event log."""
        return valid(log).where(F.expr(self.where))

    def counts(self, log: DataFrame) -> FilterCounts:
        """How many rows came in, were kept and were removed; `log` is a batch read of the event log."""
        row = valid(log).agg(F.count(F.lit(1)).alias("rows"), F.count_if(F.expr(self.where)).alias("kept")).first()
        assert row is not None
        return FilterCounts(row["rows"], row["kept"], row["rows"] - row["kept"])
