"""Columns of a frame against those of a Delta table: what the table lacks, and what it cannot take."""

from __future__ import annotations

import json
from typing import Any

from deltalake import DeltaTable, Field
from pyspark.sql.types import ArrayType, DataType, StructField, StructType

from streaming.base import LogError


def added_columns(table: DeltaTable, schema: StructType, uri: str) -> list[Field]:
    """The fields of `schema` that the table lacks, nullable, in order, and those that have more fields than there.

    A struct, also within arrays and structs, may have fields that the table's lacks, whose old rows read null there,
    and may lack some that it has.

    Raises:
        LogError: the table has a field of that name, which Delta does not tell by case, with another type.
    """
    there = {field.name.lower(): field for field in StructType.fromJson(json.loads(table.schema().to_json())).fields}
    lacking = []
    for field in nullable(schema).fields:
        existing = there.get(field.name.lower())
        if existing is None:
            lacking.append(Field.from_json(field.json()))
            continue
        together = _together(existing.dataType, field.dataType) if existing.name == field.name else None
        if together is None:
            raise LogError(
                f"the table {uri!r} has the column '{existing.name} {existing.dataType.simpleString()}', and what is "
                f"to be written has '{field.name} {field.dataType.simpleString()}'. The type of a column stays: give "
                f"it back, and declare the new one beside it as 'new_{field.name}', which is added to the table. A "
                "format that maps columns to fields reads it of the field, and the old column of one that never comes: "
                f"Json(..., fields={{'new_{field.name}': '{field.name}', '{field.name}': 'old_{field.name}'}}); what "
                f"reads both says coalesce(new_{field.name}, {field.name}). To begin anew, move the table and its "
                "checkpoint away. Nothing was written."
            )
        if together != existing.dataType:
            lacking.append(Field.from_json(StructField(field.name, together).json()))
    return lacking


def _together(one: DataType, other: DataType) -> DataType | None:
    """The type that has the fields of both, those of `one` first; None where they differ in anything else."""
    if isinstance(one, StructType) and isinstance(other, StructType):
        names = {field.name.lower(): field for field in one.fields}
        both = dict(names)
        for field in other.fields:
            before = names.get(field.name.lower())
            if before is None:
                both[field.name.lower()] = field
                continue
            type_ = _together(before.dataType, field.dataType) if before.name == field.name else None
            if type_ is None:
                return None
            both[field.name.lower()] = StructField(field.name, type_)
        return StructType(list(both.values()))
    if isinstance(one, ArrayType) and isinstance(other, ArrayType):
        elements = _together(one.elementType, other.elementType)
        return None if elements is None else ArrayType(elements)
    # Of a map delta-rs could not read the old files any more.
    return one if one == other else None


def nullable(schema: StructType) -> StructType:
    """`schema` as a table keeps it: everything may be null, and no metadata."""
    document = json.loads(schema.json())

    def relax(node: Any) -> Any:
        if isinstance(node, dict):
            return {
                key: True
                if key in ("nullable", "containsNull", "valueContainsNull")
                else {}
                if key == "metadata"
                else relax(value)
                for key, value in node.items()
            }
        return [relax(entry) for entry in node] if isinstance(node, list) else node

    return StructType.fromJson(relax(document))
