"""The changes of a table of Postgres, received from the server's log without anything in between."""

from __future__ import annotations

import re
from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar

from streaming.base import DeclarationError, check_connection
from streaming.sources.receivers.connector import Connector, LandingGuarantee, Received, Reception

_SLOT = re.compile(r"[a-z0-9_]{1,63}")
_TABLE = re.compile(r"(?:[^.\s]+\.)?[^.\s]+")


@dataclass(frozen=True)
class PostgresChanges(Connector):
    """Takes each row of `table` (`name` or `schema.name`), and then each change of it, by a logical replication slot.

    A row is an envelope as Debezium writes it in JSON, so the stream has `format=Debezium(Json(...))` and a `key`: rows
    of the table as it is at first (`op` is `r`), then those that are inserted, updated and deleted, each with its place
    in the server's log. A change of the primary key is a delete and an insert. Decimals are numbers, instants ISO 8601
    in UTC, `bytea` is base64, and other types are the text that Postgres writes.

    The rows of the beginning are those of the instant at which the slot was made, without a gap to the changes or an
    overlap. Where it is interrupted, or the slot was there before, rows that change meanwhile may come as they are
    later; each such change follows, so what stands in the end is the same.

    A value too large for its row is not in the log where an update leaves it: the format keeps the one that stands. A
    truncation is landed, and rejected by the format with its payload: nothing of the table stands by then. Columns that
    are added, dropped or of another type are told of in the log of the process.

    `slot`: its name, made where it is not there. It keeps the server's log until what is in it has landed, so drop it
    together with the receiver: `select pg_drop_replication_slot('...')`. Nobody else may read it. `publication`: of the
    table, with all its inserts, updates and deletes; by default one of the slot's name, made where it is not there,
    which takes the owner of the table.

    `connection` is a libpq connection string or URI without a password, as that of `Postgres`. The account needs
    `REPLICATION` and may read the table, which has a primary key; the server has `wal_level = logical` and is of
    version 13 or later.

    Raises:
        DeclarationError: a name or the connection string cannot be, or has a password in it.
        MissingExtra: the client of Postgres is not installed.
    """

    table: str
    slot: str
    connection: str = ""
    publication: str | None = None

    guarantee: ClassVar[LandingGuarantee] = "exactly once"

    def __post_init__(self) -> None:
        if not _TABLE.fullmatch(self.table):
            raise DeclarationError(
                f"table={self.table!r} of PostgresChanges names no table", "write 'orders' or 'shop.orders'."
            )
        if not _SLOT.fullmatch(self.slot):
            raise DeclarationError(
                f"slot={self.slot!r} of PostgresChanges cannot be the name of a slot",
                "use lower-case letters, digits and underscores, such as 'tidemark_orders'.",
            )
        check_connection(f"changes of Postgres table {self.table!r}", self.connection)

    @property
    def address(self) -> str:
        """The table and the slot."""
        return f"changes of Postgres table {'.'.join(self._schema_and_name)} by slot {self.slot}"

    @property
    def _schema_and_name(self) -> tuple[str, str]:
        schema, _, name = self.table.rpartition(".")
        return schema or "public", name

    def receive(self, reception: Reception) -> Generator[Received, None, None]:
        """The rows of the table, then its changes.

        Raises:
            ReceiverError: the server is away, the table cannot be followed, or changes are lost.
        """
        # Only who receives from Postgres loads the client.
        from streaming.sources.receivers.postgres_replication import Replication, received

        publication = self.publication or self.slot
        followed = Replication(self.connection, *self._schema_and_name, self.slot, publication, self.address)
        yield from received(followed, reception.cursor)
