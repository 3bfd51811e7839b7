"""Aggregates as values: the same object runs in the stream, in the correction and in the audit."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from streaming.base import ORDER, DeclarationError, check_type


@dataclass(frozen=True)
class Aggregate:
    """One aggregate over the rows of a window.

    `sql` is a Spark SQL aggregate expression over the stream's columns, `_event_time` and `_order`; it must not
    depend on the order in which rows are met. `meaning` is one line for people. `of_nothing` is the value for a window
    without any row, 0 for counts.
    """

    sql: str
    meaning: str
    of_nothing: int | None = None

    def __post_init__(self) -> None:
        check_type("sql of an aggregate", self.sql, str, "Spark SQL as text, such as 'sum(amount) / count(amount)'")
        check_type("meaning of an aggregate", self.meaning, str, "one line for people")

    def column(self) -> Column:
        """The Spark column that computes it."""
        return F.expr(self.sql)


def count(where: str | None = None) -> Aggregate:
    """Number of rows, or of those for which the SQL condition `where` is true. Never null."""
    if where is None:
        return Aggregate("count(1)", "number of rows", of_nothing=0)
    return Aggregate(f"count_if({where})", f"number of rows where {where}", of_nothing=0)


def mean(value: str) -> Aggregate:
    """Arithmetic mean of the SQL expression `value` over its non-null rows; null where there are none."""
    return Aggregate(f"avg({value})", f"mean of {value}")


def sum(value: str) -> Aggregate:
    """Sum of the SQL expression `value` over its non-null rows; null where there are none."""
    return Aggregate(f"sum({value})", f"sum of {value}")


def minimum(value: str) -> Aggregate:
    """Smallest value of the SQL expression `value`; null where there is none."""
    return Aggregate(f"min({value})", f"smallest {value}")


def maximum(value: str) -> Aggregate:
    """Greatest value of the SQL expression `value`; null where there is none."""
    return Aggregate(f"max({value})", f"greatest {value}")


def share(condition: str) -> Aggregate:
    """Share, 0 to 1, of rows for which the SQL `condition` is true among those for which it is not null.

    Null where the condition is null for every row.
    """
    return Aggregate(f"avg(cast(({condition}) as double))", f"share of rows where {condition}")


def count_distinct(value: str) -> Aggregate:
    """Number of different non-null values of the SQL expression `value`, exact. Never null."""
    # Spark refuses `count(distinct ...)` in a stream.
    return Aggregate(f"size(collect_set({value}))", f"number of different {value}", of_nothing=0)


def stddev(value: str) -> Aggregate:
    """Sample standard deviation of the SQL expression `value`; null for fewer than two non-null rows."""
    return Aggregate(f"stddev_samp({value})", f"standard deviation of {value}")


def percentile(value: str, share: float) -> Aggregate:
    """The exact percentile of the SQL expression `value` at `share`, 0 to 1, interpolated between neighbours.

    Raises:
        DeclarationError: `share` is not between 0 and 1.
    """
    if not 0 <= share <= 1:
        raise DeclarationError(f"a percentile of {share!r} does not exist; give a share between 0 and 1, such as 0.95.")
    return Aggregate(f"percentile({value}, {share!r})", f"percentile {share:g} of {value}")


def median(value: str) -> Aggregate:
    """The middle value of the SQL expression `value`; of an even number of rows, halfway between the middle two."""
    return Aggregate(f"percentile({value}, 0.5)", f"median of {value}")


def mode(value: str) -> Aggregate:
    """The most frequent non-null value of the SQL expression `value`; of several, the smallest."""
    return Aggregate(f"mode({value}, true)", f"most frequent {value}")


def first(value: str) -> Aggregate:
    """The SQL expression `value` of the row with the earliest event time for which it is not null.

    Of rows with equal event time, the one that is earlier in the log.
    """
    return Aggregate(f"min_by({value}, if({value} is null, null, {ORDER}))", f"first {value}")


def last(value: str) -> Aggregate:
    """The SQL expression `value` of the row with the latest event time for which it is not null.

    Of rows with equal event time, the one that is later in the log.
    """
    return Aggregate(f"max_by({value}, if({value} is null, null, {ORDER}))", f"last {value}")


def min_by(value: str, measure: str) -> Aggregate:
    """The SQL expression `value` of the row in which `measure` is smallest; of several, the first."""
    place = f"if({measure} is null, null, struct({measure}, {ORDER}))"
    return Aggregate(f"min_by({value}, {place})", f"{value} at the smallest {measure}")


def max_by(value: str, measure: str) -> Aggregate:
    """The SQL expression `value` of the row in which `measure` is greatest; of several, the last."""
    place = f"if({measure} is null, null, struct({measure}, {ORDER}))"
    return Aggregate(f"max_by({value}, {place})", f"{value} at the greatest {measure}")


def collect(value: str) -> Aggregate:
    """All values of the SQL expression `value`, nulls too, in order of event time. Its state is all of them."""
    return Aggregate(f"array_sort(collect_list(struct({ORDER} as place, {value} as value))).value", f"all {value}")
