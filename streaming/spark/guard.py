"""Expressions of users: one that fails for a row and stops no other, and what Spark has against one as a whole."""

from __future__ import annotations

from typing import Any

from pyspark import SparkContext
from pyspark.errors import AnalysisException
from pyspark.sql import Column
from pyspark.sql import functions as F

_TRY = "org.apache.spark.sql.catalyst.expressions.TryEval"
_COLUMNS = "org.apache.spark.sql.classic.ExpressionUtils"


def guarded(value: Column, beside: str) -> Column:
    """A struct with `value` as its one field, or null for the rows for which `value` cannot be computed.

    `beside` names any column of these rows. What Spark computes elsewhere than with the row raises nevertheless:
    aggregates, functions of windows, generators, Python functions and queries within `value`.
    """
    # Under a condition, as Spark computes what expressions have in common before it enters any of them, and so before
    # an error could be caught. It must not know that the condition always holds.
    always = F.col(beside).isNull().isin(True, False)
    computed = F.when(always, F.struct(value.alias("value")))
    context: Any = SparkContext._active_spark_context
    java = context._jvm
    columns = getattr(java, _COLUMNS)
    return Column(columns.column(getattr(java, _TRY)(columns.expression(computed._jc))))


def holds(condition: Column, beside: str) -> Column:
    """True for the rows for which `condition` is true, false for all others; never null, and raises for none."""
    return F.coalesce(guarded(condition, beside)["value"], F.lit(False))


def refusal(error: AnalysisException) -> str:
    """The objection of Spark to an expression, without its plan and SQL state."""
    return str(error).splitlines()[0].partition(" SQLSTATE")[0].rstrip(".")
