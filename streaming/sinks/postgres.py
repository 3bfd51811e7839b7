"""Rows into a table of Postgres, exactly once: the progress is committed in the same transaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from streaming.base import Dataset, DeclarationError, check_connection, check_type
from streaming.lake import Lake
from streaming.sinks.sink import Delivered, Guarantee, Sink, Target


@dataclass(frozen=True)
class Postgres(Target):
    """Rows of `table` (`name` or `schema.name`); where there is a `key`, one row for each value of those columns.

    Without a key every row is inserted. With one, a row takes the place of an older one of its key, never of a newer
    one: the column `_revision` (bigint) tells, by event time, end of window, or revision of a change. Of rows with the
    same revision the one delivered last stays. Deletes of changes delete.

    A table that is not there is created, with the types of what is delivered; one that is must have the columns. Their
    types decide: text is cast to `uuid`, `json`, an enum and the like, lists become arrays, instants are UTC in columns
    without a zone, and their day or time of day in a `date` or `time`. A value that a column would round or cut is not
    written. Such rows, those that violate a constraint (also a deferred one), that a trigger or a policy refuses or
    that are larger than an index takes, and those with a null in the key where the table would keep a second one,
    become dead letters. Progress is kept in the table `tidemark_progress` of the same database and schema.

    `connection` is a libpq connection string or URI without a password: libpq finds that in `PGPASSWORD`, a password
    file (`PGPASSFILE`) or a service (`service=shop`).

    Raises:
        DeclarationError: the connection string cannot be read or has a password, or a name is empty.
    """

    table: str
    key: tuple[str, ...] = ()
    connection: str = ""
    batch: int = 10_000

    kind: ClassVar[str] = "postgres"
    guarantee: ClassVar[Guarantee] = "exactly once"
    keeps_keys: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_type("table of Postgres", self.table, str, "its name, such as 'public.orders'")
        check_type("key of Postgres", self.key, tuple, "a tuple of columns, such as key=('id',)")
        parts = self.table.split(".")
        if len(parts) > 2 or not all(parts):
            raise DeclarationError(f"table={self.table!r} names no table; write 'orders' or 'shop.orders'.")
        check_connection(f"Postgres table {self.table!r}", self.connection)

    @property
    def schema(self) -> str | None:
        """The schema that was named; None where the connection's search path decides."""
        return self.table.split(".")[0] if "." in self.table else None

    @property
    def address(self) -> str:
        """Database and table."""
        from psycopg.conninfo import conninfo_to_dict

        given = conninfo_to_dict(self.connection)
        places = [str(given[name]) for name in ("service", "host", "dbname") if given.get(name)]
        return f"{'/'.join(places) or 'the default database'}: {self.table}"

    def datasets(self, lake: Lake) -> tuple[Dataset, ...]:
        """The table in its database, where libpq's string or variables name that; a service file is not read."""
        from psycopg.conninfo import conninfo_to_dict
        from psycopg.pq import Conninfo

        set_outside = {each.keyword.decode(): each.val.decode() for each in Conninfo.get_defaults() if each.val}
        given = {**set_outside, **{name: str(value) for name, value in conninfo_to_dict(self.connection).items()}}
        host, port = (given.get(name, "").split(",")[0] for name in ("host", "port"))
        database = given.get("dbname") or given.get("user", "postgres")
        name = f"{database}.{self.schema or 'public'}.{self.table.split('.')[-1]}"
        return (Dataset(f"postgres://{host or 'localhost'}:{port or '5432'}", name),)

    def connect(self, lake: Lake, delivered: Delivered) -> Sink:
        """Connects when it is used first."""
        # Only who writes to Postgres loads the client.
        from streaming.sinks.postgres_sink import PostgresSink

        return PostgresSink(self.connection, self.table.split("."), self.address, delivered)
