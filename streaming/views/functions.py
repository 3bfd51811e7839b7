"""Full-window functions, applied to the rows of each window in Spark's Python workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import localcontext
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import DataFrame, GroupedData
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from streaming.base import DECIMALS, WINDOW, FunctionError, python_values, raised
from streaming.base import instant_of as instant
from streaming.declare import WindowFunction
from streaming.views.frames import arrow_columns, pandas_frame

ERROR = "_error"
"""The column with why a function gives no results, beside columns that users have named."""


def apply_function(
    view: str, function: WindowFunction, members: DataFrame, keys: Sequence[str], *, leaves_out: bool = False
) -> DataFrame:
    """The results per group of `members` that agree in `keys`: `keys`, then the function's columns.

    A task that calls the function raises FunctionError, with the names of view, key and window, where the function
    raises or gives what is not declared; but where it `leaves_out` such groups: then these have no results.
    """
    name = function.name
    results = cast(StructType, StructType.fromDDL(function.returns))
    returned = to_arrow_schema(results, timezone="UTC")
    called = _caller(function, members, keys, returned)

    def compute(rows: pa.Table) -> pa.Table:
        values, error = called(rows)
        if error is not None and not leaves_out:
            raise FunctionError(_told(view, name, rows, keys, error))
        # Keys travel beside the function, because pandas has no type for a window, which is a struct.
        of_group = rows.select(list(keys)).take(pa.array([0] * len(values[0]), pa.int64()))
        return pa.table([*of_group.columns, *values], names=[*keys, *returned.names])

    return _by_group(members, keys).applyInArrow(compute, _with_keys(members, keys, results))


def errors_of(function: WindowFunction, members: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The groups of `members` for which the function fails: `keys`, and `_error`."""
    returned = to_arrow_schema(cast(StructType, StructType.fromDDL(function.returns)), timezone="UTC")
    called = _caller(function, members, keys, returned)

    def compute(rows: pa.Table) -> pa.Table:
        _, error = called(rows)
        group = rows.select(list(keys)).slice(0, 0 if error is None else 1)
        return group.append_column(ERROR, pa.array([] if error is None else [error], pa.string()))

    told = StructType([StructField(ERROR, StringType())])
    return _by_group(members, keys).applyInArrow(compute, _with_keys(members, keys, told))


def _caller(
    function: WindowFunction, members: DataFrame, keys: Sequence[str], returned: pa.Schema
) -> Callable[[pa.Table], tuple[list[pa.Array], str | None]]:
    """Calls the function with the rows of a group; gives the columns of its results, and why there are none."""
    apply = function.apply
    inputs = [name for name in members.columns if name not in ("_order", "_copy", *keys)]
    given = [name for name in inputs if name != "_position"] + [name for name in keys if not name.startswith("_")]

    def call(rows: pa.Table) -> tuple[list[pa.Array], str | None]:
        nothing = [pa.array([], field.type) for field in returned]
        ordered = rows.sort_by("_position").select(given)
        try:
            with localcontext(DECIMALS):
                computed = apply(pandas_frame(ordered))
        # Whatever a user's function raises is told, also that it wants to end its process.
        except (Exception, SystemExit) as error:
            return nothing, raised(error)
        try:
            return arrow_columns(computed, returned), None
        except ValueError as error:
            return nothing, str(error).replace("\n", " ")

    return call


def _by_group(members: DataFrame, keys: Sequence[str]) -> GroupedData:
    return members.drop("_order", "_copy").groupBy(*keys)


def _with_keys(members: DataFrame, keys: Sequence[str], columns: StructType) -> StructType:
    return StructType([*(members.schema[name] for name in keys), *columns.fields])


def _told(view: str, function: str, rows: pa.Table, keys: Sequence[str], why: str) -> str:
    first: dict[str, Any] = {name: python_values(rows.column(name).slice(0, 1))[0] for name in keys}
    key = ", ".join(f"{name}={value!r}" for name, value in first.items() if not name.startswith("_"))
    window = first[WINDOW]
    return (
        f"function {function} of view {view!r} failed for ({key}) and the window from {instant(window['start'])} to "
        f"{instant(window['end'])}, which has {rows.num_rows} rows: {why}. Nothing of its step was written; correct it "
        "and run again."
    )
