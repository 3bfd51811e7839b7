"""Full-window functions, applied to the rows of each window in Spark's Python workers."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import localcontext
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from streaming.base import DECIMALS, WINDOW, FunctionError, python_values, raised
from streaming.base import instant_of as instant
from streaming.declare import WindowFunction
from streaming.views.frames import arrow_columns, pandas_frame


def apply_function(view: str, function: WindowFunction, members: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The results per group of `members` that agree in `keys`: `keys`, then the function's columns.

    A task that calls the function raises FunctionError, with the names of view, key and window, where the function
    raises or gives what is not declared.
    """
    apply, name = function.apply, function.name
    inputs = [name for name in members.columns if name not in ("_order", "_copy", *keys)]
    given = [name for name in inputs if name != "_position"] + [name for name in keys if not name.startswith("_")]
    results = cast(StructType, StructType.fromDDL(function.returns))
    returned = to_arrow_schema(results, timezone="UTC")

    def compute(rows: pa.Table) -> pa.Table:
        ordered = rows.sort_by("_position").select(given)
        try:
            with localcontext(DECIMALS):
                computed = apply(pandas_frame(ordered))
        # Whatever a user's function raises is told with the key and window that it was called for.
        except Exception as error:
            raise FunctionError(_told(view, name, rows, keys, raised(error))) from error
        try:
            values = arrow_columns(computed, returned)
        except ValueError as error:
            raise FunctionError(_told(view, name, rows, keys, str(error).replace("\n", " "))) from error
        # Keys travel beside the function, because pandas has no type for a window, which is a struct.
        of_group = rows.select(list(keys)).take(pa.array([0] * len(computed), pa.int64()))
        return pa.table([*of_group.columns, *values], names=[*keys, *returned.names])

    key_fields = [members.schema[name] for name in keys]
    return (
        members.drop("_order", "_copy").groupBy(*keys).applyInArrow(compute, StructType([*key_fields, *results.fields]))
    )


def _told(view: str, function: str, rows: pa.Table, keys: Sequence[str], why: str) -> str:
    first: dict[str, Any] = {name: python_values(rows.column(name).slice(0, 1))[0] for name in keys}
    key = ", ".join(f"{name}={value!r}" for name, value in first.items() if not name.startswith("_"))
    window = first[WINDOW]
    return (
        f"function {function} of view {view!r} failed for ({key}) and the window from {instant(window['start'])} to "
        f"{instant(window['end'])}, which has {rows.num_rows} rows: {why}. Nothing of its step was written; correct it "
        "and run again."
    )
