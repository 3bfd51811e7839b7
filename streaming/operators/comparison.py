"""Rows of any types compared, also with values that Spark itself neither compares nor orders."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType


def comparable(rows: DataFrame, *names: str) -> Column:
    """A column of the rows, or a struct of several, by which Spark can compare, sort and hash them.

    Spark compares no maps: one, at whatever depth, becomes the list of its entries in the order of their keys.
    """
    columns = [_comparable(F.col(f"`{name}`"), rows.schema[name].dataType).alias(name) for name in names]
    return columns[0] if len(columns) == 1 else F.struct(*columns)


def differing_rows(stored: DataFrame, computed: DataFrame) -> int:
    """How many rows are in one of two frames of the same columns and not in the other, copies counted."""
    left, right = (frame.select(*(comparable(frame, name) for name in stored.columns)) for frame in (stored, computed))
    return left.exceptAll(right).count() + right.exceptAll(left).count()


def _comparable(value: Column, type_: DataType) -> Column:
    if not _has_map(type_):
        return value
    if isinstance(type_, MapType):
        entries = F.transform(
            F.map_entries(value),
            lambda entry: F.struct(
                _comparable(entry["key"], type_.keyType).alias("key"),
                _comparable(entry["value"], type_.valueType).alias("value"),
            ),
        )
        return F.sort_array(entries)
    if isinstance(type_, ArrayType):
        return F.transform(value, lambda element: _comparable(element, type_.elementType))
    assert isinstance(type_, StructType)
    fields = [_comparable(value[field.name], field.dataType).alias(field.name) for field in type_]
    return F.when(value.isNotNull(), F.struct(*fields))


def _has_map(type_: DataType) -> bool:
    return "map<" in type_.simpleString()
