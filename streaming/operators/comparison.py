"""Rows of any types compared, also with values that Spark itself neither compares nor orders."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, MapType, StructType

from streaming.base import ROUNDING


def comparable(rows: DataFrame, name: str) -> Column:
    """A column of the rows in a form by which Spark can compare, sort and hash them.

    Spark compares no maps: one, at whatever depth, becomes the list of its entries in the order of their keys.
    """
    return _comparable(F.col(f"`{name}`"), rows.schema[name].dataType).alias(name)


def are_close(left: Column, right: Column, type_: DataType) -> Column:
    """True where two values are the same, or differ by the rounding of doubles alone, also within arrays and structs.

    It is `is_close` of values that Spark has; maps have to be the same.
    """
    if _has_map(type_):
        return _comparable(left, type_).eqNullSafe(_comparable(right, type_))
    near = F.lit(False)
    if isinstance(type_, DoubleType | FloatType):
        within = F.greatest(F.abs(left), F.abs(right), F.lit(1.0)) * ROUNDING
        # Of an infinite value, or none that is a number, everything would be near.
        near = (within < float("inf")) & (F.abs(left - right) <= within)
    elif isinstance(type_, ArrayType):
        element = type_.elementType
        each = F.zip_with(left, right, lambda one, other: are_close(one, other, element))
        near = (F.size(left) == F.size(right)) & F.forall(each, lambda close: close)
    elif isinstance(type_, StructType):
        fields = (are_close(left[field.name], right[field.name], field.dataType) for field in type_)
        near = left.isNotNull() & right.isNotNull() & reduce(and_, fields, F.lit(True))
    return left.eqNullSafe(right) | F.coalesce(near, F.lit(False))


def differing_rows(stored: DataFrame, computed: DataFrame) -> int:
    """The number of rows in one of two frames of the same columns and not in the other, copies counted."""
    return _differences(stored, computed)[1]


@dataclass(frozen=True)
class Finding:
    """The outcome of one law: what was counted (`checked`), how many of them break it, and in words what was compared.

    `advice` says what to do about what breaks it, where that is known. `independent`: what must be was computed by
    another engine, without the code that computed what is. `waiting`: rows that nobody has acted on yet, which breaks
    nothing. `unasked`: why nothing could be compared now, though it can be at another time.
    """

    law: str
    subject: str
    checked: int
    broken: int
    compared: str
    advice: str = ""
    independent: bool = False
    waiting: int = 0
    unasked: str = ""

    @property
    def holds(self) -> bool:
        """True if nothing breaks the law."""
        return self.broken == 0


@dataclass(frozen=True)
class Law:
    """The rows stored of a subject, and those that must be: frames with the same columns, in any order.

    `words` tell people what was compared. `in_any_order`: doubles are equal where they differ by no more than sums of
    the same values in another order may.
    """

    name: str
    subject: str
    stored: DataFrame
    expected: DataFrame
    words: str
    in_any_order: bool = False

    def finding(self) -> Finding:
        """The outcome: rows that are in one of the two frames and not in the other break the law, copies counted."""
        checked, broken = _differences(self.stored, self.expected)
        if self.in_any_order and _has_doubles(self.stored):
            # A value that rounding tears apart from its equal on one grid is amid a cell of the other.
            for shift in (0.0, 0.5):
                if broken:
                    broken = min(broken, differing_rows(_rounded(self.stored, shift), _rounded(self.expected, shift)))
        return Finding(self.name, self.subject, checked, broken, self.words)


def _differences(stored: DataFrame, expected: DataFrame) -> tuple[int, int]:
    """The number of expected rows, and the number that are too many or too few; both frames are read once."""
    places = [f"_{place}" for place, _ in enumerate(stored.columns)]

    def counted(rows: DataFrame, is_stored: int) -> DataFrame:
        values = (comparable(rows, name).alias(place) for name, place in zip(stored.columns, places, strict=True))
        return rows.select(*values, F.lit(is_stored).alias("stored"), F.lit(1 - is_stored).alias("expected"))

    rows = counted(stored, 1).unionAll(counted(expected, 0)).groupBy(*places)
    groups = rows.agg(F.sum("stored").alias("stored"), F.sum("expected").alias("expected"))
    differences = F.sum(F.abs(F.col("stored") - F.col("expected")))
    row = groups.agg(F.sum("expected").alias("checked"), differences.alias("broken")).first()
    assert row is not None
    return row["checked"] or 0, row["broken"] or 0


def _has_doubles(rows: DataFrame) -> bool:
    return any(isinstance(field.dataType, (DoubleType, FloatType)) for field in rows.schema)


def _rounded(rows: DataFrame, shift: float) -> DataFrame:
    """The rows with their doubles rounded to ten digits, on a grid that `shift` moves by its share of a cell."""
    rounded = {}
    for field in rows.schema:
        if isinstance(field.dataType, (DoubleType, FloatType)):
            value = F.col(f"`{field.name}`").cast("double")
            unit = F.pow(F.lit(10.0), F.floor(F.log10(F.abs(value)) + shift) - 10)
            is_whole = (value == 0) | F.isnan(value) | (F.abs(value) == float("inf"))
            rounded[field.name] = F.when(is_whole, value).otherwise(F.floor(value / unit + shift) * unit)
    return rows.withColumns(rounded)


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
