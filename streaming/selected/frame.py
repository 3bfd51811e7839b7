"""The columns that a step selects: one for each output, so that one pass over the rows fills all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import DateType, StructField, StructType

from streaming.base import AT, BATCH, DAY, ORIGIN, WRITTEN_AT, arrow_schema
from streaming.declare import ELEMENT, FAILED, Selected, Side, Stream
from streaming.spark import as_json, first_failure, guarded

_FROM = "_from"
_WRITTEN_AT = pa.field(WRITTEN_AT, pa.timestamp("us", "UTC"))


def select_all(selected: Selected, rows: Mapping[str, DataFrame]) -> DataFrame:
    """The valid `rows` of each stream's log, with a column for each output in the order of `selected.outputs`.

    A column is a struct of what goes into the output, null for a row that its filter removes; where rows are exploded
    it is an array of such. Where rows that cannot be computed go to a side output, the last column is a struct of what
    goes there, with an `error` or null, and all others are null where there is one.
    """
    origins = {stream.name: rows[stream.name].schema[ORIGIN].dataType for stream in selected.reads}
    parts = [
        rows[stream.name]
        .withColumns({AT: F.col(f"`{stream.event_time}`"), _FROM: origin_of(stream, origins)})
        .select(*_columns(selected, stream))
        for stream in selected.reads
    ]
    return reduce(DataFrame.unionAll, parts)


def _columns(selected: Selected, stream: Stream) -> list[Column]:
    columns = [_column(side, stream) for side in selected.outputs.values()]
    if selected.diverts:
        computed = [guarded(column, BATCH) for column in columns]
        fails = reduce(Column.__or__, (column.isNull() for column in computed))
        columns = [F.when(~fails, column["value"]) for column in computed]
        columns.append(_failed(selected, stream, fails))
    return [column.alias(f"_{place}") for place, column in enumerate(columns)]


def _failed(selected: Selected, stream: Stream, fails: Column) -> Column:
    """A row of the side output: the error, null where all can be computed, the row, and where it is from.

    Null where all can, unless a function may still raise for it.
    """
    parts = (part for to, side in selected.outputs.items() for part in _parts(to, side, stream))
    unnamed = F.lit("an element of what is exploded cannot be computed")
    row = as_json(F.col(f"`{name}`") for name in stream.columns)
    whole = F.struct(
        F.when(fails, F.coalesce(first_failure(parts, BATCH), unnamed)).alias("error"),
        row.alias("row"),
        AT,
        BATCH,
        F.col(_FROM).alias(ORIGIN),
        DAY,
    )
    return F.when(fails, whole) if selected.function is None else whole


def _parts(to: str, side: Side, stream: Stream) -> Iterator[tuple[str, str, Column]]:
    """The expressions of an output that a row alone tells: what each is, its SQL, and how it is computed."""
    of = f" of side output {to!r}" if to else ""
    if side.explode is not None:
        ((name, array),) = side.explode.items()
        yield f"explode {name!r}{of}", array, F.expr(f"({array}\n)")
        return
    kept = F.lit(True) if side.where is None else F.expr(f"({side.where}\n)")
    if side.where is not None:
        yield f"where{of}", side.where, kept
    for name, sql in side.selected(stream.columns).items():
        # Of a row that the condition removes nothing is computed.
        yield f"column {name!r}{of}", sql, F.when(kept, F.expr(f"({sql}\n)"))


def origin_of(stream: Stream, origins: Mapping[str, object]) -> Column:
    """`_origin` as the tables have it: of several streams, a struct with a field for each, null but for one."""
    if len(origins) == 1:
        return F.col(ORIGIN)
    fields = (
        (F.col(ORIGIN) if name == stream.name else F.lit(None).cast(kind)).alias(name)  # type: ignore[arg-type]
        for name, kind in origins.items()
    )
    return F.struct(*fields)


def columns_by_output(selected: Selected, frame: DataFrame) -> dict[str, StructType]:
    """The columns of each output, of a frame that `select_all` gave."""
    kinds = (field.dataType for field in frame.schema.fields)
    return {
        to: kind if isinstance(kind, StructType) else kind.elementType  # type: ignore[attr-defined]
        for to, kind in zip(outputs_of(selected), kinds, strict=True)
    }


def outputs_of(selected: Selected) -> tuple[str, ...]:
    """The suffixes of the tables that a step fills, in the order of the columns that `select_all` gives."""
    return (*selected.outputs, *([FAILED] if selected.diverts else []))


def _column(side: Side, stream: Stream) -> Column:
    values = [f"({sql}\n) as `{name}`" for name, sql in side.selected(stream.columns).items()]
    added = [AT, BATCH, f"{_FROM} as {ORIGIN}", *([ELEMENT] if side.element else []), DAY]
    whole = f"struct({', '.join([*values, *added])})"
    kept = whole if side.where is None else f"if(({side.where}\n), {whole}, null)"
    if side.explode is None:
        return F.expr(kept)
    ((name, array),) = side.explode.items()
    return F.expr(f"transform(({array}\n), (`{name}`, {ELEMENT}) -> {kept})")


def table_schemas(selected: Selected, columns: Mapping[str, StructType]) -> dict[str, pa.Schema]:
    """The columns of each table without the day, by its suffix; `columns` are those that Spark selects."""
    return {to: _with_results(selected, to, _fields(kind)) for to, kind in columns.items()}


def spark_schema(schema: pa.Schema) -> StructType:
    """The columns of a table as Spark knows them, with the day, which partitions it."""
    fields = from_arrow_schema(schema, prefer_timestamp_ntz=True).fields
    return StructType([*fields, StructField(DAY, DateType())])


def _fields(kind: StructType) -> list[pa.Field]:
    # A column may be without a null in one step and have some in another.
    return [pa.field(field.name, field.type) for field in to_arrow_schema(kind, timezone="UTC") if field.name != DAY]


def _with_results(selected: Selected, to: str, fields: list[pa.Field]) -> pa.Schema:
    """A function's own table has what the function returns in place of what is selected for it."""
    if selected.function is not None and to == "":
        added = [field for field in fields if field.name.startswith("_")]
        fields = [*arrow_schema(selected.function.returns), *added, pa.field(ELEMENT, pa.int32())]
    return pa.schema([*fields, _WRITTEN_AT])
