"""Catalogs of Iceberg's REST API that also know other tables: Delta tables as generic tables of Apache Polaris.

Iceberg's own API registers a table by its Iceberg metadata, which a Delta table does not have. A server that offers
generic tables names them among its endpoints; any other one is refused.
Source: Polaris' OpenAPI document `generic-tables-api.yaml`, and Iceberg's `rest-catalog-open-api.yaml`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any
from urllib.parse import quote

from streaming.base import FrozenMapping
from streaming.catalogs.entries import LAKE, TableEntry
from streaming.catalogs.rest import RestCatalog

_OFFERED = "/generic-tables"
_FORMAT = "delta"


class IcebergRestCatalog(RestCatalog):
    """The warehouse `name` of the server at `url`; a schema is a namespace of it.

    Generic tables have a location, a comment and properties; engines read the columns from the Delta table itself.
    """

    kind = "iceberg-rest"
    page_token = "pageToken"
    next_page_token = "next-page-token"

    def as_held(self, entry: TableEntry) -> TableEntry:
        """The entry without columns and owner; the owner is also among the properties."""
        return replace(entry, columns=(), owner="")

    def schemas_of(self, lake: str) -> tuple[str, ...]:
        """The namespaces with our property."""
        names = (each[0] for each in self.pages(self._namespaces, "namespaces") if len(each) == 1)
        held = ((name, self._rest.get(f"{self._namespaces}/{_part(name)}")) for name in names)
        return tuple(name for name, each in held if ((each or {}).get("properties") or {}).get(LAKE) == lake)

    def tables(self, schema: str) -> Mapping[str, TableEntry]:
        """All generic tables of a namespace; none where there is no such namespace."""
        names = [each["name"] for each in self.pages(self._tables(schema), "identifiers")]
        found = {name: self._rest.get(f"{self._tables(schema)}/{_part(name)}") for name in names}
        return {name: _entry(schema, each["table"]) for name, each in found.items() if each is not None}

    def create_schema(self, schema: str, properties: Mapping[str, str]) -> None:
        """Make a namespace."""
        self._rest.post(self._namespaces, {"namespace": [schema], "properties": dict(properties)})

    def create(self, entry: TableEntry) -> None:
        """Register a generic table of the format `delta`."""
        body = {
            "name": entry.name,
            "format": _FORMAT,
            "base-location": entry.location,
            "doc": entry.comment,
            "properties": dict(entry.properties),
        }
        if self._rest.post(self._tables(entry.schema), body) is None:
            raise self._rest.refusal(
                f"has a table {self.full_name(entry)} by now, which somebody else has made, or an Iceberg table of it",
                "run the command again; where it says so again, rename or drop that table there.",
            )

    def withdraw(self, entry: TableEntry) -> None:
        """Drop a generic table, whose files the server leaves alone."""
        self._rest.delete(f"{self._tables(entry.schema)}/{_part(entry.name)}")

    @cached_property
    def _prefix(self) -> str:
        """The prefix of paths that the server gives to this warehouse."""
        config = self._rest.get("v1/config", {"warehouse": self._name})
        if config is None:
            raise self._rest.refusal(
                f"has no warehouse {self._name!r}",
                "correct TIDEMARK_CATALOG_NAME, or TIDEMARK_CATALOG_URL, below which is v1/config.",
            )
        if not any(str(each).endswith(_OFFERED) for each in config.get("endpoints") or ()):
            raise self._rest.refusal(
                "keeps Iceberg tables alone: it offers no generic tables, as which a Delta table could be registered",
                "give --to unity, hive or glue, which know Delta tables, or a server such as Apache Polaris.",
            )
        prefix = (config.get("overrides") or {}).get("prefix") or (config.get("defaults") or {}).get("prefix")
        return str(prefix or self._name)

    @property
    def _namespaces(self) -> str:
        return f"v1/{_part(self._prefix)}/namespaces"

    def _tables(self, schema: str) -> str:
        return f"polaris/v1/{_part(self._prefix)}/namespaces/{_part(schema)}{_OFFERED}"


def _part(name: str) -> str:
    """A name as one part of a path."""
    return quote(name, safe="")


def _entry(schema: str, table: Mapping[str, Any]) -> TableEntry:
    return TableEntry(
        schema,
        table["name"],
        (table.get("base-location") or "").rstrip("/"),
        comment=table.get("doc") or "",
        properties=FrozenMapping(table.get("properties") or {}),
    )
