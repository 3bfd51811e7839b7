"""Types of columns of Delta tables, as SQL calls them: told from a table's schema alone, without Spark."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_NAMES = {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint"}
"""The names of types in SQL, where a Delta schema has others."""


def sql_type(kind: str | Mapping[str, Any]) -> str:
    """Spark's SQL for a type of a Delta schema, in lower case: `bigint`, `struct<path:string,position:bigint>`.

    Source: "Schema Serialization Format" of Delta's protocol.
    """
    if isinstance(kind, str):
        return _NAMES.get(kind, kind)
    match kind["type"]:
        case "array":
            return f"array<{sql_type(kind['elementType'])}>"
        case "map":
            return f"map<{sql_type(kind['keyType'])},{sql_type(kind['valueType'])}>"
        case "struct":
            fields = (f"{_quoted(each['name'])}:{sql_type(each['type'])}" for each in kind["fields"])
            return f"struct<{','.join(fields)}>"
    return str(kind["type"])


def _quoted(name: str) -> str:
    """A name of a field as SQL reads it."""
    return name if re.fullmatch(r"\w+", name, re.ASCII) else f"`{name.replace('`', '``')}`"
