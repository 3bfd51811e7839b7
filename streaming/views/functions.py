"""Full-window functions, applied to the rows of each window in Spark's Python workers, as pandas frames.

Pandas has no null of its own among doubles, whose NaN stands for it. A NaN that is a value goes in as one with a mark
in its bits, which pandas keeps and nobody sees, and comes out as what it is; any other NaN comes out as null.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal, localcontext
from typing import Any, cast

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, GroupedData
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from streaming.base import DECIMALS, NAN, WINDOW, FunctionError, Reading, encoder, python_values, raised
from streaming.base import instant_of as instant
from streaming.declare import WindowFunction

ERROR = "_error"
"""The column with why a function gives no results, beside columns that users have named."""
_BITS = {8: (np.uint64, 0x7FFC_0000_0000_0000), 4: (np.uint32, 0x7FE0_0000)}
"""By bytes of the number: the marked NaN. Both are one value, which conversion from one to the other keeps."""
_SIGNLESS = {8: 0x7FFF_FFFF_FFFF_FFFF, 4: 0x7FFF_FFFF}
_WHOLE_BELOW = 2.0**53


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


def _instant(micros: int) -> pd.Timestamp:
    # Unlike Python's, pandas' instants are not bound to years up to 9999.
    return pd.Timestamp(np.datetime64(micros, "us"))


_IN_PANDAS = Reading(instant=_instant)


def pandas_frame(rows: pa.Table) -> pd.DataFrame:
    """The columns as pandas has them.

    Whole numbers are `int64` and the like, beside a null `Int64`; booleans `bool`, beside a null `boolean`; doubles
    `float64` with NaN for null; timestamps `datetime64[us]`, in UTC and without a zone. All others are columns of
    objects with None for null: decimals, dates, text, bytes, lists, and dicts for structs and maps.
    """
    return pd.DataFrame(
        {name: _series(column.combine_chunks()) for name, column in zip(rows.column_names, rows.columns, strict=True)}
    )


def _series(column: Any) -> Any:
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks)
    kind = column.type
    if pa.types.is_integer(kind):
        return _numbers(column, pd.arrays.IntegerArray)
    if pa.types.is_boolean(kind):
        return _numbers(column, pd.arrays.BooleanArray)
    if pa.types.is_floating(kind):
        return _doubles(column)
    if pa.types.is_timestamp(kind):
        micros = column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
        least = np.iinfo(np.int64).min
        return pd.Series(pc.fill_null(micros, least).to_numpy().copy().view("datetime64[us]"))
    return pd.Series(python_values(column, _IN_PANDAS), dtype=object)


def _numbers(column: pa.Array, of_nulls: Any) -> Any:
    if not column.null_count:
        return pd.Series(column.to_numpy(zero_copy_only=False, writable=True))
    values = pc.fill_null(column, False if pa.types.is_boolean(column.type) else 0)
    return pd.Series(of_nulls(values.to_numpy(zero_copy_only=False, writable=True), column.is_null().to_numpy(False)))


def _doubles(column: pa.Array) -> Any:
    values = pc.fill_null(column, 0).to_numpy(zero_copy_only=False, writable=True)
    kind, mark = _BITS[values.itemsize]
    values.view(kind)[np.isnan(values)] = mark
    if column.null_count:
        values[column.is_null().to_numpy(zero_copy_only=False)] = np.nan
    return pd.Series(values)


def arrow_columns(frame: object, schema: pa.Schema) -> list[pa.Array]:
    """The columns of a frame that a schema names, in its order and of its types.

    Raises:
        ValueError: it is no frame, lacks a column, or has a value that is not of the column's type.
    """
    if not isinstance(frame, pd.DataFrame):
        raise ValueError(f"it gave a {type(frame).__name__} and no pandas DataFrame")
    if missing := [name for name in schema.names if name not in frame.columns]:
        raise ValueError(
            f"its frame lacks {', '.join(map(repr, missing))}; it has "
            f"{', '.join(map(str, frame.columns)) or 'no column'}"
        )
    if twice := [name for name in schema.names if [*frame.columns].count(name) > 1]:
        raise ValueError(f"its frame has {', '.join(map(repr, twice))} more than once")
    return [_of_column(frame[field.name], field) for field in schema]


def _of_column(series: Any, field: pa.Field) -> pa.Array:
    try:
        return _array(series, field.type)
    # A frame may hold anything, and pandas and Arrow may raise anything for it.
    except Exception as error:
        raise ValueError(f"column {field.name!r}: {error}") from error


def _array(series: Any, kind: pa.DataType) -> pa.Array:
    dtype = series.dtype
    if isinstance(dtype, np.dtype) and dtype.kind == "f":
        return _of_doubles(series.to_numpy(), kind)
    if getattr(dtype, "tz", None) is not None:
        series = series.dt.tz_convert("UTC").dt.tz_localize(None)
        dtype = series.dtype
    if dtype.kind == "M":
        return _of_instants(series.to_numpy(), kind)
    # What is of a kind with the column goes in one go.
    for is_kind, letters in ((pa.types.is_integer, "iu"), (pa.types.is_boolean, "b")):
        if is_kind(kind) and dtype.kind in letters:
            return pa.Array.from_pandas(series, type=kind)
    encode, prepare = encoder(kind), _preparation(kind)
    return pa.array([encode(prepare(value)) for value in series.astype(object)], kind)


def _of_doubles(values: Any, kind: pa.DataType) -> pa.Array:
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
        encode, prepare = encoder(kind), _preparation(kind)
        return pa.array([encode(prepare(value)) for value in values.tolist()], kind)
    if values.itemsize not in _BITS:
        values = values.astype(np.float64)
    integer, mark = _BITS[values.itemsize]
    is_nan = np.isnan(values)
    if pa.types.is_integer(kind):
        _check_whole(float(np.abs(values[~is_nan]).max(initial=0.0)))
        return pa.array(values, mask=is_nan).cast(kind)
    marked = (values.view(integer) & integer(_SIGNLESS[values.itemsize])) == integer(mark)
    if kind == pa.float32() and values.itemsize > kind.bit_width // 8:
        _check_singles(values[np.isfinite(values)])
    plain = np.where(marked, values.dtype.type(NAN), values)
    return pa.array(plain, kind, mask=is_nan & ~marked)


def _of_instants(values: Any, kind: pa.DataType) -> pa.Array:
    instants = pa.array(values, from_pandas=True).cast(pa.timestamp("us"))
    if pa.types.is_timestamp(kind):
        return instants.cast(kind)
    if pa.types.is_date(kind):
        within = pc.subtract(
            instants.cast(pa.int64()), instants.cast(pa.date32()).cast(pa.timestamp("us")).cast(pa.int64())
        )
        if pc.any(pc.not_equal(within, 0)).as_py():
            raise ValueError("an instant within a day is no date; write .dt.date for its day")
        return instants.cast(kind)
    raise ValueError(f"instants are no {kind}")


def _preparation(kind: pa.DataType) -> Any:
    """A function that turns a value in a column of objects into one that is encoded as of this type."""

    is_exact = pa.types.is_integer(kind) or pa.types.is_decimal(kind)

    def prepare(value: Any) -> Any:
        if isinstance(value, float) and value != value:
            # So pandas has a null among other objects, too.
            return NAN if _is_marked(value) and pa.types.is_floating(kind) else None
        value = _plain(value)
        # Pandas makes doubles of whole numbers beside None.
        if is_exact and isinstance(value, float) and value.is_integer():
            _check_whole(abs(value))
            return int(value)
        if pa.types.is_floating(kind) and isinstance(value, Decimal):
            return int(value) if value.is_finite() and value == value.to_integral_value() else float(value)
        return value

    return prepare


def _check_singles(values: Any) -> None:
    """Refuse what a `float` column would make infinite."""
    greatest = float(np.abs(values).max(initial=0.0))
    encoder(pa.float32())(greatest)


def _check_whole(greatest: float) -> None:
    """Refuse what may have been rounded when pandas made a double of it."""
    if greatest >= _WHOLE_BELOW:
        raise ValueError(
            f"{greatest!r} is a double, which has not all whole numbers from 2^53 on; give such a column as "
            "pd.array(..., dtype='Int64')"
        )


def _is_marked(value: float) -> bool:
    bits: int = struct.unpack("<Q", struct.pack("<d", value))[0]
    return bits & _SIGNLESS[8] == _BITS[8][1]


def _plain(value: Any) -> Any:
    """A value without what pandas and NumPy make of it: instants are microseconds, what is missing is None."""
    if value is None or value is pd.NA or value is pd.NaT:
        return None
    if isinstance(value, np.datetime64):
        value = pd.Timestamp(value)
    if isinstance(value, pd.Timestamp):
        return _micros(value)
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value
    if isinstance(value, np.ndarray | Sequence) and not isinstance(value, str | bytes):
        # A row of Spark is a tuple that knows its fields.
        return _plain(value.asDict()) if hasattr(value, "asDict") else _entries(value)
    if isinstance(value, Mapping):
        return {_plain(name): _plain(each) for name, each in value.items()}
    return value.item() if isinstance(value, np.generic) else value


def _entries(values: Any) -> list[Any]:
    # Pairs, of which some maps are made, stay pairs.
    return [tuple(map(_plain, each)) if type(each) is tuple else _plain(each) for each in values]


def _micros(instant: pd.Timestamp) -> int:
    if instant.tzinfo is not None:
        instant = instant.tz_convert("UTC").tz_localize(None)
    micros = instant.as_unit("us", round_ok=False)
    return int(micros.asm8.view("int64"))
