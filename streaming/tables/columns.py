"""Columns of a frame against those of a Delta table: what the table lacks, and what it cannot take."""

from __future__ import annotations

import json
from typing import Any

from deltalake import DeltaTable, Field
from pyspark.sql.types import StructType

from streaming.base import LogError


def added_columns(table: DeltaTable, schema: StructType, uri: str) -> list[Field]:
    """The fields of `schema` that the table lacks, nullable, in order.

    Raises:
        LogError: the table has a field of that name, which Delta does not tell by case, with another type.
    """
    there = {field.name.lower(): field for field in StructType.fromJson(json.loads(table.schema().to_json())).fields}
    lacking = []
    for field in nullable(schema).fields:
        existing = there.get(field.name.lower())
        if existing is None:
            lacking.append(Field.from_json(field.json()))
        elif (existing.name, existing.dataType) != (field.name, field.dataType):
            raise LogError(
                f"the table {uri!r} has the column '{existing.name} {existing.dataType.simpleString()}', and what is "
                f"to be written has '{field.name} {field.dataType.simpleString()}'. The type of a column stays: give "
                "it back, or declare the new one under a new name, which is added to the table; to begin anew, move "
                "the table and its checkpoint away. Nothing was written."
            )
    return lacking


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
