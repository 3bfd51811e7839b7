"""The keys of the rows that a result is made of, and results that are not published yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import singledispatch
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streaming.base import ReadError, from_micros
from streaming.declare import Operator, OverWindows, Stream, TwoSided, Windowed
from streaming.lake import Lake
from streaming.operators import whole_since
from streaming.provenance.answer import Row
from streaming.provenance.days import day_of_key
from streaming.provenance.log_rows import rows_near
from streaming.reading import instant_of
from streaming.tables import Between, arrow_schema_of, delta

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@singledispatch
def keys_of_streams(operator: Operator, key: Row) -> dict[Stream, list[Row]]:
    """The values of the columns of each stream by which its rows are of a key; a stream of both sides has two."""
    raise NotImplementedError(type(operator).__name__)


@keys_of_streams.register
def _(operator: Windowed, key: Row) -> dict[Stream, list[Row]]:
    return {operator.of: [{name: key[name] for name in operator.by}]}


@keys_of_streams.register
def _(operator: TwoSided, key: Row) -> dict[Stream, list[Row]]:
    keys: dict[Stream, list[Row]] = {}
    for side in operator.sides:
        of_side = {theirs: key[ours] for ours, theirs in zip(operator.by, side.keys, strict=True)}
        keys.setdefault(side.stream, []).append(of_side)
    return keys


@singledispatch
def unpublished_key(
    operator: Operator, lake: Lake, texts: Mapping[str, str | None], spark: Callable[[], Any]
) -> Row | None:
    """The key of a group of which rows are there, and no result is published; None where there are none."""
    return None


@unpublished_key.register
def _(operator: OverWindows, lake: Lake, texts: Mapping[str, str | None], spark: Callable[[], Any]) -> Row | None:
    window, own = operator.window, delta.open_table(lake.table(operator))
    if own is None or window.merging or window.reach is None or not {*operator.by, "window_start"} <= texts.keys():
        return None
    types = arrow_schema_of(own)
    key = {name: _value(name, texts[name], types.field(name).type) for name in (*operator.by, "window_start")}
    start, since, day = key["window_start"], whole_since(lake, operator), day_of_key(operator, key)
    if since is not None and day is not None and day < since:
        # Of rows that are left of such a day nothing is published any more.
        return None
    near = Between(start - window.rows_before, start + window.reach)
    for stream in operator.reads:
        if not delta.exists(lake.log(stream)):
            return None
    of_keys = keys_of_streams(operator, key)
    logs = [rows_near(lake, stream, keys, near) for stream, keys in of_keys.items()]
    if not any(log.valid.num_rows or log.rejected for log in logs):
        return None
    ends = _ends(operator, start, spark())
    if "window_end" in texts:
        ends = [end for end in ends if end == _value("window_end", texts["window_end"], types.field("window_end").type)]
    return {**key, "window_end": ends[0]} if len(ends) == 1 else None


def _ends(operator: OverWindows, start: datetime, spark: SparkSession) -> list[datetime]:
    """The ends of the windows that begin at an instant."""
    from pyspark.sql import functions as F

    from streaming.base import literal

    if operator.window.expressions:
        return []
    windows = spark.range(1).select(F.explode(operator.window.bounds(literal(start))).alias("window"))
    of_start = windows.where(F.col("window.start") == literal(start)).select(F.unix_micros("window.end").alias("end"))
    return [from_micros(row["end"]) for row in of_start.collect()]


def _value(name: str, text: str | None, type_: pa.DataType) -> Any:
    if text is None:
        return None
    try:
        if pa.types.is_timestamp(type_):
            return instant_of(name, text)
        return pa.scalar(text, pa.string()).cast(type_).as_py()
    except (ValueError, pa.ArrowException):
        raise ReadError(
            f"{name}={text!r} is no value of type {type_}.", "Write one that is.", field=name, value=text
        ) from None
