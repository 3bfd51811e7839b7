"""Results of windows that close, computed by Arrow in the driver where few rows make them.

A job of Spark takes most of its time to be planned and begun, whatever the number of rows. What is computed here is
proven to be the same: windows at regular intervals, and simple aggregates of values that are expressions over a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import cached_property

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from streaming.base import (
    DAY,
    END_OF_EVENT_TIMES,
    FIRST_EVENT_TIME,
    FIRST_INSTANT,
    LAST_MILLISECOND,
    STAMP,
    as_type,
    days_of,
    optional_micros,
    pc,
    to_micros,
)
from streaming.declare import Aggregate, Windowed
from streaming.log import LogFiles
from streaming.spark import ArrowExpression, Rows, Unproven, arrow_expressions, decimal_type, is_equal_in_arrow
from streaming.views.computation import WindowAnalysis
from streaming.views.results import keeps_rows, with_order
from streaming.windows import Closing, Micros

MOST_ROWS = 500_000
"""Rows that are read to compute results here, and their pairs; of more, Spark uses all cores."""
_WHERE = "(where)"
_WHOLE, _REAL = ("byte", "short", "integer", "long"), ("float", "double")
_IN_ORDER = (*_WHOLE, *_REAL, "boolean", "date", "timestamp", "timestamp_ntz")
_MAY_OVERFLOW = 2.0**62
"""A sum of amounts from which on a `bigint` might not hold one of them, whatever the rounding of doubles."""
_MOST_DIGITS = 28
"""The most digits of a decimal that is summed here: its sum has ten more in Spark, and no more than 38 in Arrow."""


class ArrowResults:
    """The results of one view by Arrow, as far as they are proven to be those of Spark."""

    def __init__(self, log: LogFiles, analysis: WindowAnalysis) -> None:
        assert isinstance(analysis.of, Windowed)
        self._view = analysis.of
        self._log = log
        self._analysis = analysis

    @cached_property
    def _expressions(self) -> Mapping[str, ArrowExpression] | Unproven:
        return row_expressions(self._analysis)

    def of(self, since: datetime | None, by: datetime, through: int) -> pa.Table | None:
        """Results of the windows that end in (since, by], of the batches of the log up to `through`.

        None where Spark is to compute them: too many rows make them, or one has a value that Arrow treats in another
        way, or for which Spark may fail.
        """
        if self._log.can_retract() or isinstance(expressions := self._expressions, Unproven):
            return None
        begin, before = self._view.window.times_for_ends(since, by)
        names = {name for each in expressions.values() for name in each.reads}
        read = dict.fromkeys([self._view.of.event_time, STAMP, *self._view.by, *sorted(names)])
        times = (begin or FIRST_INSTANT, before or LAST_MILLISECOND)
        rows = self._log.rows([*read], -1, through, MOST_ROWS, times=times)
        closing = None if rows is None else self._closing(rows, since, by)
        if closing is None or closing.counts.sum() > MOST_ROWS:
            return None
        return self._counted(rows, closing, expressions)

    def _closing(self, rows: pa.Table, since: datetime | None, by: datetime) -> Closing | None:
        """The windows for which each row counts; none where there are no days around it."""
        first, last = to_micros(FIRST_EVENT_TIME), to_micros(END_OF_EVENT_TIMES)
        times = _micros(rows[self._view.of.event_time], last)
        stamps = _micros(rows[STAMP], to_micros(FIRST_INSTANT))
        closing = self._view.window.closing(times, stamps, optional_micros(since), to_micros(by))
        if closing is None:
            return None
        return closing._replace(counts=np.where((times >= first) & (times < last), closing.counts, 0))

    def _counted(self, rows: pa.Table, closing: Closing, expressions: Mapping[str, ArrowExpression]) -> pa.Table | None:
        """The results of `rows`, whose windows `closing` has."""
        places = np.flatnonzero(closing.counts)
        rows = rows.take(pa.array(places))
        if _WHERE in expressions:
            holds = _values(rows, {_WHERE: expressions[_WHERE]})
            if holds is None:
                return None
            is_counted = pc.fill_null(holds[_WHERE], False)
            rows, places = rows.filter(is_counted), places[is_counted.to_numpy(zero_copy_only=False)]
        values = _values(rows, {name: each for name, each in expressions.items() if name in self._view.aggregates})
        if values is None:
            return None
        counts = closing.counts[places]
        row = np.repeat(np.arange(len(places)), counts)
        place_in_row = np.arange(len(row)) - (np.cumsum(counts) - counts)[row]
        starts = closing.begins[places][row] + place_in_row * closing.period
        return self._grouped(rows, values, row, starts, closing.size)

    def _grouped(
        self, rows: pa.Table, values: Mapping[str, pa.Array], row: Micros, starts: Micros, size: int
    ) -> pa.Table | None:
        """The results of pairs: each is of the `row` at a place, with the aggregated `values`, and of a window."""
        view, taken = self._view, pa.array(row)
        columns = {f"key {name}": rows[name].take(taken) for name in view.by}
        functions, sizes = dict[str, str](), dict[str, pa.Array]()
        for name, aggregate in view.aggregates.items():
            assert aggregate.simple is not None
            functions[name] = aggregate.simple.function
            summands = _summands(functions[name], values[name].take(taken))
            if summands is None:
                return None
            columns[f"value {name}"] = summands
            if functions[name] == "sum" and pa.types.is_integer(summands.type):
                sizes[f"size {name}"] = pc.abs(summands.cast(pa.float64(), safe=False))
        pairs = pa.table({**columns, **sizes, "start": starts})
        # Threads of Arrow's own would take the cores of other steps.
        grouping = pa.TableGroupBy(pairs, [*(f"key {name}" for name in view.by), "start"], use_threads=False)
        wanted = [(f"value {name}", function) for name, function in functions.items()]
        groups = grouping.aggregate([*wanted, *((size, "sum") for size in sizes)])
        # Arrow's sums wrap around where Spark fails.
        if any((pc.max(groups[f"{size}_sum"]).as_py() or 0.0) >= _MAY_OVERFLOW for size in sizes):
            return None
        begins = groups["start"].to_numpy()
        results = {
            **{name: groups[f"key {name}"] for name in view.by},
            "window_start": pa.array(begins),
            "window_end": pa.array(begins + size),
            **{name: groups[f"value {name}_{function}"] for name, function in functions.items()},
            DAY: days_of(begins),
        }
        schema = to_arrow_schema(self._analysis.results, timezone="UTC")
        return pa.table([as_type(results[field.name], field.type) for field in schema], schema=schema)


def row_expressions(analysis: WindowAnalysis) -> Mapping[str, ArrowExpression] | Unproven:
    """The condition of a view and what it aggregates, as expressions over a row; or why Spark is to compute results."""
    view, results = analysis.of, analysis.results
    if not isinstance(view, Windowed) or keeps_rows(view) or view.diverts:
        return Unproven("which rows count does not follow from each of them alone")
    nothing = np.empty(0, np.int64)
    if view.window.closing(nothing, nothing, None, 0) is None:
        return Unproven(f"{type(view.window).__name__} windows are known to Spark alone")
    odd = [name for name in view.by if not is_equal_in_arrow(results[name].dataType)]
    if odd:
        return Unproven(f"values of {odd[0]} that are equal in Spark are not in Arrow")
    simple = {name: each.simple for name, each in view.aggregates.items()}
    values = {
        name: each.value for name, each in simple.items() if each is not None and each.sql == view.aggregates[name].sql
    }
    if others := [name for name in view.aggregates if name not in values]:
        return Unproven(f"{others[0]} is no simple aggregate")
    if view.where is not None:
        values[_WHERE] = f"({view.where}\n)"
    rows = with_order(analysis.inputs[view.of.name], view)
    told = arrow_expressions(rows.select(*(F.expr(text).alias(name) for name, text in values.items())))
    proven = dict[str, ArrowExpression]()
    for name, each in told.items():
        if isinstance(each, Unproven):
            return each
        if name in view.aggregates and not _is_proven(view.aggregates[name], each.type):
            return Unproven(f"{view.aggregates[name].sql} of {each.type} is left to Spark")
        proven[name] = each
    return proven


def _is_proven(aggregate: Aggregate, kind: str) -> bool:
    """True where Arrow computes the aggregate of values of a kind as Spark does, but for values that are told of."""
    digits = decimal_type(kind)
    match aggregate.simple and aggregate.simple.function:
        case "count":
            return True
        case "sum":
            return kind in (*_WHOLE, *_REAL) or (digits is not None and digits[0] <= _MOST_DIGITS)
        case "mean":
            return kind in (*_WHOLE, *_REAL)
        case _:
            return kind in _IN_ORDER or digits is not None


def _summands(function: str, values: pa.Array) -> pa.Array | None:
    """The values in the type in which the function computes; None where it treats one in another way than Spark."""
    kind = values.type
    if function == "mean" or (function == "sum" and pa.types.is_floating(kind)):
        return values.cast(pa.float64(), safe=False)
    if function == "sum" and pa.types.is_integer(kind):
        return values.cast(pa.int64())
    if function in ("min", "max") and pa.types.is_floating(kind):
        # NaN has a place in Spark's order alone. Zeros of both signs are one, and here they are one that has none.
        has_nan = pc.any(pc.is_nan(values)).as_py()
        return None if has_nan else pc.add(values, pa.scalar(0.0, kind))
    return values


def _values(rows: pa.Table, expressions: Mapping[str, ArrowExpression]) -> dict[str, pa.Array] | None:
    """The values of expressions over rows; None where they are not certain for one of these."""
    columns = {name: column.combine_chunks() for name, column in zip(rows.column_names, rows.columns, strict=True)}
    of_rows = Rows(columns, rows.num_rows)
    values = {name: of_rows.array_of(each) for name, each in expressions.items()}
    return None if of_rows.doubtful.any() else values


def _micros(instants: pa.ChunkedArray, of_null: int) -> Micros:
    micros: Micros = pc.fill_null(instants.combine_chunks().cast(pa.int64()), of_null).to_numpy()
    return micros
