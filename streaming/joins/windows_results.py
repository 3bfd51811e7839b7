"""Results of groups that hold the rows of both sides: joined rows, or what a function makes of them.

First results, corrections and the audit all go this way, so that they agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from streaming.base import DAY, EVENT_TIME, ORDER, WINDOW, arrow_schema
from streaming.declare import LEFT_AT, RIGHT_AT, CoGrouped, TwoSided, WindowJoined
from streaming.joins.windows_function import ERROR, CallPerWindow, ErrorPerWindow
from streaming.joins.windows_rows import LEFT, RIGHT, ROWS
from streaming.spark import first_failure

_MEETING, _KEPT = "_meeting", "_kept"


def finish(groups: DataFrame, operator: TwoSided, *extra: str) -> DataFrame:
    """Results of `groups`: the operator's columns, those of `extra`, `_day`."""
    results = _joined(groups, operator, extra) if isinstance(operator, WindowJoined) else groups
    if isinstance(operator, CoGrouped):
        results = _called(groups, operator, extra)
    return results.select(*operator.columns, *extra, F.to_date("window_start").alias(DAY))


def _bounded(groups: DataFrame) -> DataFrame:
    """`groups` with `window_start` and `window_end`."""
    return groups.withColumns({"window_start": F.col(f"{WINDOW}.start"), "window_end": F.col(f"{WINDOW}.end")})


def _joined(groups: DataFrame, operator: WindowJoined, extra: tuple[str, ...]) -> DataFrame:
    pairs = _pairs(groups, operator, extra)
    if operator.diverts:
        pairs = pairs.where(_failure(operator).isNull())
    computed = (F.expr(f"({sql}\n)").alias(name) for name, sql in operator.selected.items())
    return pairs.select(f"{_KEPT}.*", *computed)


def failed_pairs(groups: DataFrame, operator: WindowJoined) -> DataFrame:
    """The pairs of `groups` of which a column cannot be computed: `_error`, `_left`, `_right`, keys and window."""
    told = _pairs(groups, operator, ()).withColumn(ERROR, _failure(operator)).where(F.col(ERROR).isNotNull())
    return told.select(ERROR, LEFT, RIGHT, f"{_KEPT}.*")


def _failure(operator: WindowJoined) -> Column:
    """The part of a pair that cannot be computed, in words; null where all can."""
    computed = (each for each in operator.selected.items() if each[1].strip("`") not in operator.pair.types)
    return first_failure(((f"column {name!r}", sql, F.expr(f"({sql}\n)")) for name, sql in computed), _KEPT)


def _pairs(groups: DataFrame, operator: WindowJoined, extra: tuple[str, ...]) -> DataFrame:
    """The pairs of `groups`: the columns that SQL over a pair reads, both rows, and in `_kept` what is not computed."""
    left, right = F.col(LEFT), F.col(RIGHT)
    apart = F.array(
        F.struct(left.alias(LEFT), F.slice(right, 1, 0).alias(RIGHT)),
        F.struct(F.slice(left, 1, 0).alias(LEFT), right.alias(RIGHT)),
    )
    together = F.array(F.struct(left.alias(LEFT), right.alias(RIGHT)))
    # A null equals nothing, so that rows of such a key are by themselves.
    has_null = reduce(or_, (F.col(key).isNull() for key in operator.by))
    kept = [*operator.by, "window_start", "window_end", *extra]
    meetings = _bounded(groups).select(*kept, F.explode(F.when(has_null, apart).otherwise(together)).alias(_MEETING))
    wanted = meetings.where(_has_results(operator)).select(*kept, f"{_MEETING}.*")
    by_left = wanted.select(*kept, RIGHT, F.explode_outer(LEFT).alias(LEFT))
    pairs = by_left.select(*kept, LEFT, F.explode_outer(RIGHT).alias(RIGHT))
    # Names of a pair may be those of the window.
    return pairs.select(F.struct(*kept).alias(_KEPT), LEFT, RIGHT, *_pair(operator))


def _pair(operator: WindowJoined) -> Iterator[Column]:
    """The columns that SQL over a pair reads."""
    for side, names, at in ((LEFT, operator.pair.left, LEFT_AT), (RIGHT, operator.pair.right, RIGHT_AT)):
        yield from (F.col(side)[name].alias(alias) for name, alias in names.items())
        yield F.col(side)[EVENT_TIME].alias(at)


def _has_results(operator: WindowJoined) -> Column:
    has_left, has_right = (F.size(F.col(_MEETING)[side]) > 0 for side in ROWS.values())
    return {"inner": has_left & has_right, "left": has_left, "outer": has_left | has_right}[operator.kind]


def _called(groups: DataFrame, operator: CoGrouped, extra: tuple[str, ...]) -> DataFrame:
    given, kept = _given(groups, operator, extra)
    results = arrow_schema(operator.result)
    fields = [given.schema[name] for name in kept]
    schema = StructType([*fields, *from_arrow_schema(results, prefer_timestamp_ntz=True).fields])
    call = CallPerWindow(operator.name, operator.function, operator.by, kept, results, leaves_out=operator.diverts)
    return given.mapInArrow(call, schema)


def failed_groups(groups: DataFrame, operator: CoGrouped) -> DataFrame:
    """The `groups` for which the function fails: `_error`, the keys, `window_start`, `window_end`."""
    given, kept = _given(groups, operator, ())
    schema = StructType([*(given.schema[name] for name in kept), StructField(ERROR, StringType())])
    call = ErrorPerWindow(operator.name, operator.function, operator.by, kept, arrow_schema(operator.result))
    return given.mapInArrow(call, schema)


def _given(groups: DataFrame, operator: CoGrouped, extra: tuple[str, ...]) -> tuple[DataFrame, tuple[str, ...]]:
    """The `groups` as a function sees them, and the names of what it is not given, but results have."""
    rows = [_in_order(F.col(ROWS[side.name]), side.stream.columns).alias(ROWS[side.name]) for side in operator.sides]
    kept = (*operator.by, "window_start", "window_end", *extra)
    return _bounded(groups).select(*kept, *rows), kept


def _in_order(rows: Column, columns: tuple[str, ...]) -> Column:
    """The rows of one side by event time, then in the order of their log, with the columns that a function sees."""

    def compared(one: Column, other: Column) -> Column:
        return F.when(one[ORDER] < other[ORDER], -1).when(one[ORDER] > other[ORDER], 1).otherwise(0)

    def shown(row: Column) -> Column:
        return F.struct(*(row[name].alias(name) for name in columns))

    # Not sorted as they are: a row may hold a map, which has no order.
    return F.transform(F.array_sort(rows, compared), shown)
