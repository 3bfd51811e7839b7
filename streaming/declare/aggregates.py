"""Aggregates as values: the same object runs in the stream, in the correction and in the audit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from streaming.base import ORDER, DeclarationError, F, Kind, settle

if TYPE_CHECKING:
    from pyspark.sql import Column

_EPSILON = 2.0**-52
_EXACT = "0D"
"""The rounding of a value that is one of the rows', or that is made of sorted ones."""

_ARRIVAL = f"struct({ORDER}._batch, {ORDER}._origin)"
"""A row's place in the log."""
_NUMBERS: tuple[Kind, ...] = ("number",)
_MEASURES: tuple[Kind, ...] = ("number", "interval")
_IN_ORDER: tuple[Kind, ...] = ("number", "text", "date", "timestamp", "boolean", "interval", "array", "struct")
"""The kinds whose values have an order, or can at least be told from each other: all but maps."""


@dataclass(frozen=True)
class Part:
    """A value that is kept of some rows of a window, to be put together with those of its other rows.

    `sql` computes it from rows; `merged`, an aggregate over kept values, is that of all of them together. In `merged`
    and in `Aggregate.whole`, `{0}` stands for the first part of the aggregate, `{1}` for the second.
    """

    sql: str
    merged: str


@dataclass(frozen=True)
class Simple:
    """An aggregate of one value of each row: how many there are, their sum, mean, or the least or greatest of them.

    `value` is a SQL expression over the columns of a row; rows for which it is null do not count. `sql` is how Spark is
    asked for the same.
    """

    function: Literal["count", "sum", "mean", "min", "max"]
    value: str
    sql: str


@dataclass(frozen=True)
class Aggregate:
    """One aggregate over the rows of a window.

    `sql` is a Spark SQL aggregate expression over the stream's columns, `_event_time` and `_order`; it must not
    depend on the order in which rows are met. `meaning` is one line for people. `of_nothing` is the value for a window
    without any row, 0 for counts.

    With `parts`, what is kept of an open session is these, and `whole` makes the value of them; without, its rows.
    `in_doubles`: the parts are, so that they do not tell a decimal exactly.

    `takes`: SQL of values of a row that it needs, each with the kinds of types that it may have, such as `number`; one
    that is not there may have any.

    `rounding` is an aggregate over the same rows: how far two values of it in doubles may be apart that differ in the
    order of their rows alone. Without it the audit allows a billionth of the value.

    `measured` is the SQL expression whose unit its values have, too; of a count, a share and the like there is none.

    `simple` is what `sql` says where that is no more than one `Simple` aggregate, so that Arrow may compute it as well;
    one of another `sql` counts for nothing.
    """

    sql: str
    meaning: str
    of_nothing: int | None = None
    parts: tuple[Part, ...] = ()
    whole: str = "{0}"
    in_doubles: bool = False
    rounding: str | None = None
    takes: tuple[tuple[str, tuple[Kind, ...]], ...] = ()
    measured: str = ""
    simple: Simple | None = None

    def __post_init__(self) -> None:
        settle(self, "an aggregate")

    def column(self) -> Column:
        """The Spark column that computes it."""
        return F.expr(self.sql)


def _added(sql: str, meaning: str, simple: Simple, of_nothing: int | None = None) -> Aggregate:
    """An aggregate that is the sum of itself over parts of the rows."""
    return Aggregate(sql, meaning, of_nothing, parts=(Part(sql, "sum({0})"),), simple=simple)


def _averaged(sql: str, value: str, meaning: str) -> Aggregate:
    """An aggregate that is a sum divided by the number of its summands; the rounding is that of the sum.

    Its values have the unit of `value`.
    """
    total, number = Part(f"sum(cast({value} as double))", "sum({0})"), Part(f"count({value})", "sum({1})")
    rounding = f"sum(abs(cast({value} as double))) * {2 * _EPSILON!r}"
    whole, takes = "{0} / nullif({1}, 0)", ((value, _MEASURES),)
    parts = (total, number)
    return Aggregate(
        sql,
        meaning,
        None,
        parts,
        whole,
        in_doubles=True,
        rounding=rounding,
        takes=takes,
        measured=value,
        simple=Simple("mean", value, sql),
    )


def _extreme(function: Literal["min", "max"], value: str, meaning: str) -> Aggregate:
    """The least or greatest value."""
    parts, takes = (Part(f"{function}({value})", f"{function}({{0}})"),), ((value, _IN_ORDER),)
    return Aggregate(
        parts[0].sql,
        meaning,
        parts=parts,
        rounding=_EXACT,
        takes=takes,
        measured=value,
        simple=Simple(function, value, parts[0].sql),
    )


def _picked(function: str, value: str, place: str, meaning: str, measure: str | None = None) -> Aggregate:
    """`value` of the row whose `place`, or its `measure`, is least or greatest; `function` is min or max."""
    parts = (
        Part(f"{function}_by({value}, {place})", f"{function}_by({{0}}, {{1}})"),
        Part(f"{function}({place})", f"{function}({{1}})"),
    )
    takes = () if measure is None else ((measure, _IN_ORDER),)
    return Aggregate(parts[0].sql, meaning, parts=parts, rounding=_EXACT, takes=takes, measured=value)


def count(where: str | None = None) -> Aggregate:
    """Number of rows, or of those for which the SQL condition `where` is true. Never null."""
    if where is None:
        return _added("count(1)", "number of rows", Simple("count", "1", "count(1)"), of_nothing=0)
    sql = f"count_if({where})"
    rows = Simple("count", f"if(({where}\n), 1, null)", sql)
    return _added(sql, f"number of rows where {where}", rows, of_nothing=0)


def mean(value: str) -> Aggregate:
    """Arithmetic mean of the SQL expression `value` over its non-null rows; null where there are none.

    Of whole numbers and doubles it is a double, computed in doubles: exact while the sum has at most 53 bits. Of a
    `decimal(p, s)` it is a `decimal(p + 4, s + 4)` of 38 digits at most, so that a mean of `decimal(38, 18)` has 16
    digits before the point, and a greater one is an error; declare as many digits as there may be, such as
    `decimal(28, 18)`.
    Where every digit counts, take `sum` and `count` and divide them in the report.
    """
    return _averaged(f"avg({value})", value, f"mean of {value}")


def sum(value: str) -> Aggregate:
    """Sum of the SQL expression `value` over its non-null rows; null where there are none.

    Two sums of the same doubles in other orders differ by at most the number of summands times the sum of their
    amounts times the machine epsilon (Higham, Accuracy and Stability of Numerical Algorithms, 4.2).
    """
    rounding = f"count({value}) * sum(abs(cast({value} as double))) * {_EPSILON!r}"
    sql, takes = f"sum({value})", ((value, _MEASURES),)
    added = _added(sql, f"sum of {value}", Simple("sum", value, sql))
    return replace(added, rounding=rounding, takes=takes, measured=value)


def minimum(value: str) -> Aggregate:
    """Smallest value of the SQL expression `value`; null where there is none."""
    return _extreme("min", value, f"smallest {value}")


def maximum(value: str) -> Aggregate:
    """Greatest value of the SQL expression `value`; null where there is none."""
    return _extreme("max", value, f"greatest {value}")


def share(condition: str) -> Aggregate:
    """Share, 0 to 1, of rows for which the SQL `condition` is true among those for which it is not null.

    Null where the condition is null for every row.
    """
    value = f"cast(({condition}) as double)"
    averaged = _averaged(f"avg({value})", value, f"share of rows where {condition}")
    return replace(averaged, takes=((condition, ("boolean",)),), measured="")


def count_distinct(value: str) -> Aggregate:
    """Number of different non-null values of the SQL expression `value`, exact. Never null."""
    values = Part(f"collect_set({value})", "array_distinct(flatten(collect_list({0})))")
    sql, takes = f"size({values.sql})", ((value, _IN_ORDER),)
    return Aggregate(sql, f"number of different {value}", 0, (values,), "size({0})", takes=takes)


def stddev(value: str) -> Aggregate:
    """Sample standard deviation of the SQL expression `value`; null for fewer than two non-null rows.

    The rounding is that of formulas that update it (Chan, Golub, LeVeque: Algorithms for Computing the Sample
    Variance, 1983).
    """
    rounding = f"sqrt(count({value}) * sum(pow(cast({value} as double), 2))) * {2 * _EPSILON!r}"
    sql, takes = f"stddev_samp({value})", ((value, _NUMBERS),)
    return Aggregate(sql, f"standard deviation of {value}", rounding=rounding, takes=takes, measured=value)


def percentile(value: str, share: float) -> Aggregate:
    """The exact percentile of the SQL expression `value` at `share`, 0 to 1, interpolated between neighbours, a double.

    Raises:
        DeclarationError: `share` is not between 0 and 1.
    """
    if not 0 <= share <= 1:
        raise DeclarationError(
            f"a percentile of {share!r} does not exist", "give a share between 0 and 1, such as 0.95."
        )
    sql, takes = f"percentile({value}, {share!r})", ((value, _MEASURES),)
    return Aggregate(sql, f"percentile {share:g} of {value}", rounding=_EXACT, takes=takes, measured=value)


def median(value: str) -> Aggregate:
    """The middle value of the SQL expression `value`; of an even number of rows, halfway between the middle two.

    It is a double whatever `value` is, so of whole numbers from 2^53 on and of decimals the nearest one.
    """
    sql, takes = f"percentile({value}, 0.5)", ((value, _MEASURES),)
    return Aggregate(sql, f"median of {value}", rounding=_EXACT, takes=takes, measured=value)


def mode(value: str) -> Aggregate:
    """The most frequent non-null value of the SQL expression `value`; of several, the smallest."""
    takes = ((value, _IN_ORDER),)
    return Aggregate(f"mode({value}, true)", f"most frequent {value}", rounding=_EXACT, takes=takes, measured=value)


def first(value: str) -> Aggregate:
    """The SQL expression `value` of the row with the earliest event time for which it is not null.

    Of rows with equal event time, the one that is earlier in the log.
    """
    return _picked("min", value, f"if({value} is null, null, {ORDER})", f"first {value}")


def last(value: str) -> Aggregate:
    """The SQL expression `value` of the row with the latest event time for which it is not null.

    Of rows with equal event time, the one that is later in the log.
    """
    return _picked("max", value, f"if({value} is null, null, {ORDER})", f"last {value}")


def first_arrived(value: str) -> Aggregate:
    """The SQL expression `value` of the row that came first, whatever its event time, of those where it is not null."""
    return _picked("min", value, f"if({value} is null, null, {_ARRIVAL})", f"{value} that came first")


def last_arrived(value: str) -> Aggregate:
    """The SQL expression `value` of the row that came last, whatever its event time, of those where it is not null."""
    return _picked("max", value, f"if({value} is null, null, {_ARRIVAL})", f"{value} that came last")


def min_by(value: str, measure: str) -> Aggregate:
    """The SQL expression `value` of the row in which `measure` is smallest; of several, the first."""
    place = f"if({measure} is null, null, struct({measure}, {ORDER}))"
    return _picked("min", value, place, f"{value} at the smallest {measure}", measure)


def max_by(value: str, measure: str) -> Aggregate:
    """The SQL expression `value` of the row in which `measure` is greatest; of several, the last."""
    place = f"if({measure} is null, null, struct({measure}, {ORDER}))"
    return _picked("max", value, place, f"{value} at the greatest {measure}", measure)


def collect(value: str) -> Aggregate:
    """All values of the SQL expression `value`, nulls too, in order of event time. Its state is all of them."""
    values = Part(f"collect_list(struct({ORDER} as place, {value} as value))", "flatten(collect_list({0}))")
    sql, whole = f"array_sort({values.sql}).value", "array_sort({0}).value"
    return Aggregate(sql, f"all {value}", parts=(values,), whole=whole, takes=((value, _IN_ORDER),))
