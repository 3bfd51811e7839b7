"""A connector of one's own: rows that are added to a table of a database, exactly once."""

import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import ClassVar

import psycopg

from streaming import Connector, Received, ReceiverError, Reception


@dataclass(frozen=True)
class TableRows(Connector):
    """The rows of a table of Postgres as JSON, in the order of their ids, a thousand at once."""

    table: str
    connection: str
    guarantee: ClassVar = "exactly once"

    @property
    def address(self) -> str:
        """The table."""
        return f"table {self.table}"

    def receive(self, reception: Reception) -> Generator[Received, None, None]:
        """The rows that were added behind the id that was landed last."""
        query = f"select id, row_to_json(t)::text from {self.table} t where id > %s order by id limit 1000"
        last = reception.cursor or 0
        try:
            with psycopg.connect(self.connection, autocommit=True) as connection:
                while True:
                    rows = connection.execute(query, (last,)).fetchall()
                    last = rows[-1][0] if rows else last
                    yield Received([row.encode() for _, row in rows], cursor=last)
                    if not rows:
                        time.sleep(0.5)
        except psycopg.OperationalError as error:
            raise ReceiverError(f"{self.address} is away: {error}") from error
