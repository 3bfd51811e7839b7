"""The Hive metastore by its Thrift protocol: external tables that Spark and Trino read as Delta tables.

Source of the layout: Delta's page on the Hive metastore, and Trino's Delta Lake connector. Both find a Delta table by
the parameter `spark.sql.sources.provider` and by `path` of the serde, and read its columns from Delta's own log; the
columns that the metastore has are for people, and for tools that only look there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from streaming.base import CatalogError, FrozenMapping, SettingsError, host_of
from streaming.catalogs.catalog import Catalog
from streaming.catalogs.entries import LAKE, CatalogColumn, TableEntry

if TYPE_CHECKING:
    from hive_metastore.ThriftHiveMetastore import Client
    from hive_metastore.ttypes import Table

DELTA_PARAMETERS = {"EXTERNAL": "TRUE", "spark.sql.sources.provider": "delta"}
"""Parameters of a table that say to Spark, Trino and Athena that it is a Delta table which lies elsewhere."""

INPUT_FORMAT = "org.apache.hadoop.mapred.SequenceFileInputFormat"
OUTPUT_FORMAT = "org.apache.hadoop.hive.ql.io.HiveSequenceFileOutputFormat"
SERDE = "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"
"""The formats that Spark gives to a table of which the metastore knows no better."""

COMMENT = "comment"
_MOST_COMMENT = 256
_PORT = 9083
_MILLISECONDS = 30_000
Answer = TypeVar("Answer")


class HiveCatalog(Catalog):
    """The metastore at `url`, such as `thrift://localhost:9083`; a schema is a database of it.

    Raises:
        SettingsError: the URL is none of a metastore.
    """

    kind = "hive"

    def __init__(self, url: str) -> None:
        place = _host_and_port(url)
        if place is None:
            raise SettingsError(
                f"TIDEMARK_CATALOG_URL ({host_of(url)}) is no address of a Hive metastore",
                "write thrift://host:9083, without a user.",
                field="TIDEMARK_CATALOG_URL",
            )
        self._host, self._port = place
        self._transport: Any = None

    @property
    def address(self) -> str:
        """The address of the metastore."""
        return f"thrift://{self._host}:{self._port}"

    def as_held(self, entry: TableEntry) -> TableEntry:
        """The entry with names of columns in lower case, their comments cut, and Hadoop's name for S3."""
        return replace(entry, location=_hadoop(entry.location), columns=tuple(map(_held, entry.columns)))

    def schemas_of(self, lake: str) -> tuple[str, ...]:
        """The databases with our property."""
        names = self._asked(lambda client: client.get_all_databases())
        return tuple(name for name in names if self._is_of(name, lake))

    def tables(self, schema: str) -> Mapping[str, TableEntry]:
        """All tables of a database; none where there is no such database."""
        names = self._asked(lambda client: client.get_all_tables(schema))
        found = (self._table(schema, name) for name in names)
        return {table.tableName: _entry(table) for table in found if table is not None}

    def create_schema(self, schema: str, properties: Mapping[str, str]) -> None:
        """Make a database, in the folder that the metastore gives it."""
        from hive_metastore.ttypes import AlreadyExistsException, Database

        database = Database(name=schema, description="", parameters=dict(properties))
        try:
            self._asked(lambda client: client.create_database(database), AlreadyExistsException)
        except AlreadyExistsException:
            return

    def create(self, entry: TableEntry) -> None:
        """Register an external table."""
        from hive_metastore.ttypes import AlreadyExistsException

        try:
            self._asked(lambda client: client.create_table(_table(entry)), AlreadyExistsException)
        except AlreadyExistsException:
            raise CatalogError(
                f"{self.address} has a table {entry} by now, which somebody else has made meanwhile",
                "run the command again.",
                address=self.address,
            ) from None

    def change(self, entry: TableEntry, standing: TableEntry) -> None:
        """Alter the table, or register it anew where the metastore refuses the new columns in the place of the old."""
        from hive_metastore.ttypes import InvalidOperationException

        table = _table(entry.beside(standing))
        try:
            self._asked(lambda client: client.alter_table(entry.schema, entry.name, table), InvalidOperationException)
        except InvalidOperationException:
            self.register_anew(entry, standing)

    def withdraw(self, entry: TableEntry) -> None:
        """Drop an external table without its data."""
        from hive_metastore.ttypes import NoSuchObjectException

        try:
            self._asked(lambda client: client.drop_table(entry.schema, entry.name, False), NoSuchObjectException)
        except NoSuchObjectException:
            return

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()

    def _is_of(self, schema: str, lake: str) -> bool:
        from hive_metastore.ttypes import NoSuchObjectException

        try:
            database = self._asked(lambda client: client.get_database(schema), NoSuchObjectException)
        except NoSuchObjectException:
            return False
        return (database.parameters or {}).get(LAKE) == lake

    def _table(self, schema: str, name: str) -> Table | None:
        from hive_metastore.ttypes import (
            ClientCapabilities,
            ClientCapability,
            GetTableRequest,
            NoSuchObjectException,
        )

        # Of a table of Hive's own kind the metastore else refuses to tell; it is somebody else's, and only read.
        able = ClientCapabilities([ClientCapability.INSERT_ONLY_TABLES])
        request = GetTableRequest(dbName=schema, tblName=name, capabilities=able)
        try:
            # Version 4 has no `get_table` any more.
            return self._asked(lambda client: client.get_table_req(request), NoSuchObjectException).table
        except NoSuchObjectException:
            return None

    @cached_property
    def _client(self) -> Client:
        from hive_metastore.ThriftHiveMetastore import Client
        from thrift.protocol.TBinaryProtocol import TBinaryProtocol
        from thrift.transport.TSocket import TSocket
        from thrift.transport.TTransport import TBufferedTransport

        socket = TSocket(self._host, self._port)
        socket.setTimeout(_MILLISECONDS)
        transport = TBufferedTransport(socket)
        transport.open()
        self._transport = transport
        return Client(TBinaryProtocol(transport))

    def _asked(self, ask: Callable[[Any], Answer], passing: type[Exception] | None = None) -> Answer:
        """The answer of the metastore; an exception of its own that is `passing` is its caller's."""
        from thrift.Thrift import TException
        from thrift.transport.TTransport import TTransportException

        try:
            return ask(self._client)
        except (TTransportException, OSError) as error:
            raise CatalogError(
                f"the hive catalog at {self.address} cannot be reached ({error})",
                "start it, or correct TIDEMARK_CATALOG_URL; run the command again, which goes on with what is left.",
                address=self.address,
            ) from error
        except TException as error:
            if passing is not None and isinstance(error, passing):
                raise
            raise CatalogError(
                f"the hive catalog at {self.address} refuses: {getattr(error, 'message', None) or error}",
                "see its log, correct what it names, and run the command again, which goes on with what is left.",
                address=self.address,
            ) from error


def _host_and_port(url: str) -> tuple[str, int] | None:
    """The host and port of a metastore; None where the URL is none of one, or has a user in it."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORT
    except ValueError:
        return None
    return (parts.hostname, port) if parts.scheme == "thrift" and parts.hostname and "@" not in parts.netloc else None


def hive_type(kind: str) -> str:
    """Hive's name of a type in Spark's SQL: Hive has one timestamp, and names of fields that need no quotes."""
    unquoted = re.sub(r"`((?:[^`]|``)*)`", lambda name: re.sub(r"\W", "_", name[1]), kind)
    return re.sub(r"\btimestamp_ntz\b(?!:)", "timestamp", unquoted)


def shortened(text: str, most: int) -> str:
    """A text of at most so many characters."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _held(column: CatalogColumn) -> CatalogColumn:
    """A column of which Hive does not know whether it can be null, or the table is partitioned by it."""
    comment = shortened(column.comment, _MOST_COMMENT)
    return CatalogColumn(column.name.lower(), hive_type(column.type), comment, schema=column.schema)


def _hadoop(location: str) -> str:
    return f"s3a://{location.removeprefix('s3://')}" if location.startswith("s3://") else location


def _table(entry: TableEntry) -> Table:
    from hive_metastore.ttypes import FieldSchema, SerDeInfo, StorageDescriptor, Table

    storage = StorageDescriptor(
        cols=[FieldSchema(column.name, column.type, column.comment) for column in entry.columns],
        location=entry.location,
        inputFormat=INPUT_FORMAT,
        outputFormat=OUTPUT_FORMAT,
        serdeInfo=SerDeInfo(serializationLib=SERDE, parameters={"path": entry.location, "serialization.format": "1"}),
        numBuckets=-1,
        bucketCols=[],
        sortCols=[],
        parameters={},
    )
    return Table(
        tableName=entry.name,
        dbName=entry.schema,
        owner=entry.owner,
        tableType="EXTERNAL_TABLE",
        partitionKeys=[],
        parameters={**entry.properties, **DELTA_PARAMETERS, COMMENT: entry.comment},
        sd=storage,
    )


def _entry(table: Table) -> TableEntry:
    parameters: dict[str, str] = dict(table.parameters or {})
    storage = table.sd
    path = (storage.serdeInfo.parameters or {}).get("path") if storage and storage.serdeInfo else None
    # Hadoop writes one slash for the three of a file's URI.
    location = re.sub(r"^file:/+", "file:///", path or (storage.location if storage else "") or "")
    columns = (CatalogColumn(each.name, each.type, each.comment or "") for each in (storage.cols if storage else ()))
    return TableEntry(
        table.dbName,
        table.tableName,
        location,
        tuple(columns),
        parameters.pop(COMMENT, ""),
        table.owner or "",
        FrozenMapping(parameters),
    )
