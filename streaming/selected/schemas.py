"""The columns of a selection's tables."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import DateType, StructField, StructType

from streaming.base import DAY, WRITTEN_AT, arrow_schema
from streaming.declare import ELEMENT, Selected

_WRITTEN_AT = pa.field(WRITTEN_AT, pa.timestamp("us", "UTC"))


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
