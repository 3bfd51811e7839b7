"""Aggregates as values: the same object runs in the stream, in the correction and in the audit."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F


@dataclass(frozen=True)
class Aggregate:
    """One aggregate over the rows of a window.

    `sql` is a Spark SQL aggregate expression over the stream's columns, `meaning` one line for people.
    """

    sql: str
    meaning: str

    def column(self) -> Column:
        """The Spark column that computes it."""
        return F.expr(self.sql)


def count(where: str | None = None) -> Aggregate:
    """Number of rows, or of those for which the SQL condition `where` is true. Never null."""
    if where is None:
        return Aggregate("count(1)", "number of rows")
    return Aggregate(f"count_if({where})", f"number of rows where {where}")


def mean(value: str) -> Aggregate:
    """Arithmetic mean of the SQL expression `value` over its non-null rows; null where there are none."""
    return Aggregate(f"avg({value})", f"mean of {value}")


def total(value: str) -> Aggregate:
    """Sum of the SQL expression `value` over its non-null rows; null where there are none."""
    return Aggregate(f"sum({value})", f"sum of {value}")


def least(value: str) -> Aggregate:
    """Smallest value of the SQL expression `value`; null where there is none."""
    return Aggregate(f"min({value})", f"smallest {value}")


def greatest(value: str) -> Aggregate:
    """Greatest value of the SQL expression `value`; null where there is none."""
    return Aggregate(f"max({value})", f"greatest {value}")


def share(condition: str) -> Aggregate:
    """Share, 0 to 1, of rows for which the SQL `condition` is true among those for which it is not null.

    Null where the condition is null for every row.
    """
    return Aggregate(f"avg(cast(({condition}) as double))", f"share of rows where {condition}")
