"""Expressions of users: one that fails for a row and stops no other, what Spark has against one, what it is made of."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from streaming.base import F, names_in

if TYPE_CHECKING:
    from pyspark.errors import AnalysisException
    from pyspark.sql import Column, DataFrame

_TRY = "org.apache.spark.sql.catalyst.expressions.TryEval"
_COLUMNS = "org.apache.spark.sql.classic.ExpressionUtils"
_LONGEST_VALUE = 200
_FUNCTION, _AGGREGATE, _IN_ORDER = "UnresolvedFunction", "AggregateExpression", "SortOrder"
_NEVER_FAIL = ("Literal", "UnresolvedAttribute", "UnresolvedStar")


def guarded(value: Column, beside: str) -> Column:
    """A struct with `value` as its one field, or null for the rows for which `value` cannot be computed.

    `beside` names any column of these rows. What Spark computes elsewhere than with the row raises nevertheless:
    aggregates, functions of windows, generators, Python functions and queries within `value`.
    """
    # Under a condition, as Spark computes what expressions have in common before it enters any of them, and so before
    # an error could be caught. It must not know that the condition always holds.
    always = F.col(beside).isNull().isin(True, False)
    computed = F.when(always, F.struct(value.alias("value")))
    java = java_classes()
    return column_of(getattr(java, _TRY)(getattr(java, _COLUMNS).expression(computed._jc)))


def column_of(expression: Any) -> Column:
    """The column that an expression of Spark's own is."""
    from pyspark.sql import Column

    return Column(getattr(java_classes(), _COLUMNS).column(expression))


def java_classes() -> Any:
    """The classes of the JVM that runs Spark."""
    from pyspark import SparkContext

    context: Any = SparkContext._active_spark_context
    return context._jvm


def holds(condition: Column, beside: str) -> Column:
    """True for the rows for which `condition` is true, false for all others; never null, and raises for none."""
    return computed_or(condition, F.lit(False), beside)


def computed_or(value: Column, other: Column, beside: str) -> Column:
    """`value`, or `other` for the rows for which it is null or cannot be computed."""
    return F.coalesce(guarded(value, beside)["value"], other)


def first_failure(parts: Iterable[tuple[str, str, Column]], beside: str) -> Column:
    """Which of the `parts` cannot be computed for a row, in words; null where all can.

    Each is what it is, its SQL, and the column. The first that fails is named.
    """
    failures = (
        F.when(guarded(value, beside).isNull(), F.lit(f"{what} cannot be computed: {sql}"))
        for what, sql, value in parts
    )
    return F.coalesce(*failures, F.lit(None).cast("string"))


def refusal(error: AnalysisException) -> str:
    """The objection of Spark to an expression, without its plan and SQL state."""
    return str(error).splitlines()[0].partition(" SQLSTATE")[0].rstrip(".")


def named_values(names: Sequence[str], texts: Collection[str]) -> Column:
    """Columns with their values, such as `a=1, code='x', b=null`; those that are `texts` in quotes, and cut."""
    values = (F.concat(F.lit(f"{name}="), _value(name, "'" if name in texts else "")) for name in names)
    return F.concat_ws(", ", *values)


def failure_of(frame: DataFrame, what: str, sql: str, value: Column, beside: str) -> Column:
    """Why `value`, which is `what` and made by the SQL, cannot be computed for a row of `frame`; null where it can.

    With the values of the columns that the SQL reads.
    """
    failure = first_failure([(what, sql, value)], beside)
    read = sorted(names_in(sql) & {*frame.columns})
    texts = {name for name, type_ in frame.dtypes if type_ == "string"}
    return F.concat(failure, F.lit(", of "), named_values(read, texts)) if read else failure


def _value(name: str, quote: str) -> Column:
    # Bytes of whatever encoding may be among them.
    text = F.make_valid_utf8(F.col(f"`{name}`").cast("string"))
    cut = F.when(F.length(text) > _LONGEST_VALUE, F.concat(F.substring(text, 1, _LONGEST_VALUE), F.lit("...")))
    return F.coalesce(F.concat(F.lit(quote), F.coalesce(cut, text), F.lit(quote)), F.lit("null"))


def row_values(aggregate: str) -> list[Column]:
    """The arguments of the aggregate functions in the SQL, and their filters, but for those that are a mere column.

    An argument behind a filter is null for the rows that the filter leaves out. Casts that Spark adds to an argument,
    such as of text to a number, are not part of it.
    """
    from pyspark.sql import SparkSession

    session: Any = SparkSession.active()
    state = session._jsparkSession.sessionState()
    return list(_values_in(state.sqlParser().parseExpression(aggregate), state.catalog()))


def _values_in(node: Any, catalog: Any) -> Iterator[Column]:
    kind = _kind(node)
    if kind == _AGGREGATE:
        yield from _values_of(_each(node.aggregateFunction().children()), node.filter())
    elif kind == _FUNCTION and _puts_rows_together(node, catalog):
        yield from _values_of([*_each(node.arguments()), *_each(node.orderingWithinGroup())], node.filter())
    else:
        for child in _each(node.children()):
            yield from _values_in(child, catalog)


def _values_of(arguments: list[Any], condition: Any) -> Iterator[Column]:
    taken = F.lit(True)
    if condition.isDefined():
        taken = column_of(condition.get())
        yield taken
    values = (each.child() if _kind(each) == _IN_ORDER else each for each in arguments)
    for value in values:
        if _kind(value) not in _NEVER_FAIL:
            yield F.when(taken, column_of(value))


def _puts_rows_together(node: Any, catalog: Any) -> bool:
    from py4j.protocol import Py4JJavaError

    name = java_classes().org.apache.spark.sql.catalyst.FunctionIdentifier(node.nameParts().last())
    try:
        return bool(catalog.lookupFunctionInfo(name).getGroup() == "agg_funcs")
    except Py4JJavaError:
        # It is not there, as Spark says of the whole expression.
        return False


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _each(nodes: Any) -> list[Any]:
    return [nodes.apply(place) for place in range(nodes.size())]
