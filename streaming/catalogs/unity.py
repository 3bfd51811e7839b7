"""Unity Catalog over its REST API: external Delta tables in a catalog that is there.

Source: the OpenAPI document of its open-source server, `api/all.yaml`, versions 0.2 to 0.4; that of Databricks has the
same paths.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from streaming.base import FrozenMapping
from streaming.catalogs.entries import LAKE, CatalogColumn, TableEntry
from streaming.catalogs.rest import RestCatalog

_API = "api/2.1/unity-catalog"
_PAGE = "50"
_TYPE_NAMES = {"bigint": "LONG", "smallint": "SHORT", "tinyint": "BYTE"}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


class UnityCatalog(RestCatalog):
    """The catalog `name` of the server at `url`; its tables are `name.schema.table`.

    Its API changes no table, so one that has to be changed is taken out and registered again at once. It keeps the
    owner as the property `tidemark.owner`; that of the table is whoever has the token.
    """

    kind = "unity"
    page_token = "page_token"
    next_page_token = "next_page_token"

    def as_held(self, entry: TableEntry) -> TableEntry:
        """The entry without its owner, who is another one there."""
        return replace(entry, owner="")

    def schemas_of(self, lake: str) -> tuple[str, ...]:
        """Those with our property."""
        pages = self._listed("schemas", {"catalog_name": self._name})
        return tuple(each["name"] for each in pages if (each.get("properties") or {}).get(LAKE) == lake)

    def tables(self, schema: str) -> Mapping[str, TableEntry]:
        """All tables of a schema; none where there is no such schema."""
        pages = self._listed("tables", {"catalog_name": self._name, "schema_name": schema})
        return {entry.name: entry for entry in map(_entry, pages)}

    def create_schema(self, schema: str, properties: Mapping[str, str]) -> None:
        """Make a schema in the catalog, which has to be there."""
        if self._rest.get(f"{_API}/catalogs/{quote(self._name, safe='')}") is None:
            raise self._rest.refusal(
                f"has no catalog {self._name!r}",
                "make it there, or set TIDEMARK_CATALOG_NAME to one that it has; then run the command again.",
            )
        self._rest.post(f"{_API}/schemas", {"name": schema, "catalog_name": self._name, "properties": dict(properties)})

    def create(self, entry: TableEntry) -> None:
        """Register an external Delta table."""
        body = {
            "name": entry.name,
            "catalog_name": self._name,
            "schema_name": entry.schema,
            "table_type": "EXTERNAL",
            "data_source_format": "DELTA",
            "columns": [_column(place, column) for place, column in enumerate(entry.columns)],
            "storage_location": entry.location,
            "comment": entry.comment,
            "properties": dict(entry.properties),
        }
        if self._rest.post(f"{_API}/tables", body) is None:
            raise self._rest.refusal(
                f"has a table {self.full_name(entry)} by now, which somebody else has made meanwhile",
                "run the command again.",
            )

    def withdraw(self, entry: TableEntry) -> None:
        """Take an external table out, whose files the server leaves alone."""
        self._rest.delete(f"{_API}/tables/{quote(self.full_name(entry), safe='')}")

    def _listed(self, what: str, params: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
        return self.pages(f"{_API}/{what}", what, {**params, "max_results": _PAGE})


def _entry(table: Mapping[str, Any]) -> TableEntry:
    columns = (
        CatalogColumn(
            column["name"],
            column.get("type_text") or "",
            column.get("comment") or "",
            bool(column.get("nullable", True)),
            column.get("partition_index"),
        )
        for column in sorted(table.get("columns") or (), key=lambda column: column.get("position") or 0)
    )
    return TableEntry(
        table["schema_name"],
        table["name"],
        (table.get("storage_location") or "").rstrip("/"),
        tuple(columns),
        table.get("comment") or "",
        properties=FrozenMapping(table.get("properties") or {}),
    )


def _column(place: int, column: CatalogColumn) -> dict[str, Any]:
    """A column in its request; `type_json` is a field of Spark's, as the server's own examples have it."""
    field = {"name": column.name, "type": json.loads(column.schema), "nullable": column.is_nullable, "metadata": {}}
    decimal = _DECIMAL.fullmatch(column.type)
    head = re.split(r"[(<]", column.type, maxsplit=1)[0]
    return {
        "name": column.name,
        "type_text": column.type,
        "type_name": _TYPE_NAMES.get(head, head.upper()),
        "type_json": json.dumps(field),
        "type_precision": int(decimal[1]) if decimal else 0,
        "type_scale": int(decimal[2]) if decimal else 0,
        "position": place,
        "comment": column.comment,
        "nullable": column.is_nullable,
        **({} if column.partition is None else {"partition_index": column.partition}),
    }
