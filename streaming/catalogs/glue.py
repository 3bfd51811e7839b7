"""The Data Catalog of AWS Glue: external tables that Athena, Redshift, EMR and Trino read as Delta tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

from streaming.base import CatalogError, FrozenMapping
from streaming.catalogs.catalog import Catalog
from streaming.catalogs.entries import LAKE, CatalogColumn, TableEntry
from streaming.catalogs.hive import DELTA_PARAMETERS, INPUT_FORMAT, OUTPUT_FORMAT, SERDE, hive_type, shortened
from streaming.catalogs.rest import address_of

_PARAMETERS = {**DELTA_PARAMETERS, "classification": "delta", "table_type": "DELTA"}
"""Athena takes a table for one of Delta's by `table_type`, crawlers and jobs of Glue by `classification`."""

_MOST_COMMENT, _MOST_DESCRIPTION = 255, 2_048
_SECONDS = 30
Answer = TypeVar("Answer")


class GlueCatalog(Catalog):
    """The Data Catalog of the account and region that boto3 finds; a schema is a database of it.

    `url` is the endpoint, where it is not Amazon's own; `name` the id of a catalog, where it is not the account's.

    Raises:
        SettingsError: the URL is none, or has a user or password in it.
    """

    kind = "glue"

    def __init__(self, url: str | None = None, name: str | None = None) -> None:
        self._url = url
        self._address = "AWS Glue" if url is None else address_of(url, "credentials as boto3 finds them")
        self._of = {} if name is None else {"CatalogId": name}

    @property
    def address(self) -> str:
        """The endpoint."""
        return self._address

    def as_held(self, entry: TableEntry) -> TableEntry:
        """The entry with comments as long as Glue takes them."""
        return replace(
            entry,
            comment=shortened(entry.comment, _MOST_DESCRIPTION),
            columns=tuple(
                CatalogColumn(
                    column.name,
                    hive_type(column.type),
                    shortened(column.comment, _MOST_COMMENT),
                    schema=column.schema,
                )
                for column in entry.columns
            ),
        )

    def schemas_of(self, lake: str) -> tuple[str, ...]:
        """The databases with our property."""
        databases = self._all("get_databases", "DatabaseList")
        return tuple(each["Name"] for each in databases if each.get("Parameters", {}).get(LAKE) == lake)

    def tables(self, schema: str) -> Mapping[str, TableEntry]:
        """All tables of a database; none where there is no such database."""
        tables = self._all("get_tables", "TableList", DatabaseName=schema)
        return {table["Name"]: _entry(schema, table) for table in tables}

    def create_schema(self, schema: str, properties: Mapping[str, str]) -> None:
        """Make a database."""
        wanted = {"Name": schema, "Parameters": dict(properties)}
        self._asked("create_database", passing="AlreadyExistsException", DatabaseInput=wanted)

    def create(self, entry: TableEntry) -> None:
        """Register an external table."""
        self._asked("create_table", DatabaseName=entry.schema, TableInput=_input(entry))

    def change(self, entry: TableEntry, standing: TableEntry) -> None:
        """Update the table, of which Glue keeps the version before."""
        self._asked("update_table", DatabaseName=entry.schema, TableInput=_input(entry.beside(standing)))

    def withdraw(self, entry: TableEntry) -> None:
        """Delete the table from the catalog, which leaves its files alone."""
        self._asked("delete_table", passing="EntityNotFoundException", DatabaseName=entry.schema, Name=entry.name)

    def close(self) -> None:
        """Close the connections, if there are any."""
        if "_client" in vars(self):
            self._client.close()

    @cached_property
    def _client(self) -> Any:
        import boto3
        from botocore.config import Config

        config = Config(connect_timeout=_SECONDS, read_timeout=_SECONDS, retries={"mode": "standard"})
        return boto3.client("glue", endpoint_url=self._url, config=config)

    def _all(self, operation: str, what: str, **given: Any) -> list[Any]:
        """Everything of a list, page after page; nothing where there is nothing that it could be in."""

        def listed() -> list[Any]:
            pages = self._client.get_paginator(operation).paginate(**self._of, **given)
            return [each for page in pages for each in page[what]]

        return self._guarded(operation, listed, "EntityNotFoundException") or []

    def _asked(self, operation: str, *, passing: str = "", **given: Any) -> None:
        self._guarded(operation, lambda: getattr(self._client, operation)(**self._of, **given), passing)

    def _guarded(self, operation: str, ask: Callable[[], Answer], passing: str) -> Answer | None:
        """The answer of Glue; None where it answers with the error called `passing`."""
        from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError

        try:
            return ask()
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code == passing:
                return None
            step = "correct what it names, and run the command again, which goes on with what is left."
            if code in ("AccessDeniedException", "UnrecognizedClientException", "ExpiredTokenException"):
                step = "give the credentials of this process that right, and run the command again."
            said = error.response["Error"].get("Message") or "it gives no reason"
            raise self._error(f"refuses {operation} ({code}): {said}", step) from error
        except ParamValidationError as error:
            said = " ".join(str(error).split())
            raise self._error(
                f"does not take what {operation} would tell it: {said}", "correct what it names."
            ) from error
        except BotoCoreError as error:
            # Its text has the region or credentials that are missing, and no secret.
            raise self._error(
                f"cannot be reached ({error})",
                "set AWS_REGION and credentials, and TIDEMARK_CATALOG_URL where it is no service of Amazon's; then run "
                "the command again, which goes on with what is left.",
            ) from error

    def _error(self, what: str, next_step: str) -> CatalogError:
        return CatalogError(f"the glue catalog at {self.address} {what}", next_step, address=self.address)


def _input(entry: TableEntry) -> dict[str, Any]:
    return {
        "Name": entry.name,
        "Description": entry.comment,
        **({"Owner": entry.owner} if entry.owner else {}),
        "TableType": "EXTERNAL_TABLE",
        "Parameters": {**entry.properties, **_PARAMETERS},
        "PartitionKeys": [],
        "StorageDescriptor": {
            "Columns": [
                {"Name": column.name, "Type": column.type, "Comment": column.comment} for column in entry.columns
            ],
            "Location": entry.location,
            "InputFormat": INPUT_FORMAT,
            "OutputFormat": OUTPUT_FORMAT,
            "SerdeInfo": {
                "SerializationLibrary": SERDE,
                "Parameters": {"path": entry.location, "serialization.format": "1"},
            },
        },
    }


def _entry(schema: str, table: Mapping[str, Any]) -> TableEntry:
    storage = table.get("StorageDescriptor") or {}
    columns = (
        CatalogColumn(each["Name"], each.get("Type") or "", each.get("Comment") or "")
        for each in storage.get("Columns") or ()
    )
    return TableEntry(
        schema,
        table["Name"],
        (storage.get("Location") or "").rstrip("/"),
        tuple(columns),
        table.get("Description") or "",
        table.get("Owner") or "",
        FrozenMapping(table.get("Parameters") or {}),
    )
