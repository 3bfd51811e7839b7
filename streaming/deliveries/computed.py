"""Computed columns of a delivery: a row that cannot be computed stops no other, and is known with its values.

What is a mere column is left as it is, so that it costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streaming.declare import Delivery
from streaming.sinks import CHANGE, DELETE, FAILURE
from streaming.spark import failure_of, guarded


def chosen_rows(rows: DataFrame, delivery: Delivery, beside: str) -> DataFrame:
    """Those for which the condition holds, and those for which it cannot be judged, which become dead letters.

    `beside` names any column of the rows, as everywhere here.
    """
    if delivery.where is None or not may_fail(delivery.where, delivery):
        return rows if delivery.where is None else rows.where(delivery.where)
    judged = guarded(_condition(delivery.where), beside)
    return rows.where(judged.isNull() | judged["value"])


def may_fail(sql: str, delivery: Delivery) -> bool:
    """True if the SQL of a delivery is more than a column that it reads."""
    return sql.strip("`") not in delivery.readable


def value_of(name: str, delivery: Delivery, beside: str) -> Column:
    """A column that is selected, null for the rows for which it cannot be computed."""
    sql = delivery.selected[name]
    return guarded(F.expr(sql), beside)["value"] if may_fail(sql, delivery) else F.expr(sql)


def selected_columns(frame: DataFrame, delivery: Delivery, beside: str) -> list[Column]:
    """The columns of a delivery, and where one or the condition may fail for a row of `frame` why it did."""
    columns = [value_of(name, delivery, beside).alias(name) for name in delivery.selected]
    failures = list(_failures(frame, delivery, beside))
    return [*columns, *([F.coalesce(*failures).alias(FAILURE)] if failures else [])]


def _failures(frame: DataFrame, delivery: Delivery, beside: str) -> Iterator[Column]:
    changes = delivery.what == "current"
    # Of a deleted result nothing but what identifies it counts.
    is_there = F.col(CHANGE) != DELETE
    if delivery.where is not None and may_fail(delivery.where, delivery):
        why = failure_of(frame, "where", delivery.where, _condition(delivery.where), beside)
        yield F.when(is_there, why) if changes else why
    for name, sql in delivery.selected.items():
        if may_fail(sql, delivery):
            why = failure_of(frame, f"column {name!r}", sql, F.expr(sql), beside)
            yield F.when(is_there, why) if changes and name not in delivery.identity else why


def _condition(sql: str) -> Column:
    return F.coalesce(F.expr(sql), F.lit(False))
