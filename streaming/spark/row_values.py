"""The values that an aggregate computes of each row, before rows are put together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from streaming.spark.guard import column_of, java_classes

_FUNCTION, _AGGREGATE, _IN_ORDER = "UnresolvedFunction", "AggregateExpression", "SortOrder"
_NEVER_FAIL = ("Literal", "UnresolvedAttribute", "UnresolvedStar")


def row_values(aggregate: str) -> list[Column]:
    """The arguments of the aggregate functions in the SQL, and their filters, but for those that are a mere column.

    An argument behind a filter is null for the rows that the filter leaves out. Casts that Spark adds to an argument,
    such as of text to a number, are not part of it.
    """
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
