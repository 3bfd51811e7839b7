"""Rows into tables of several Postgres databases: in all of them, or in none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from streaming.base import Dataset, DeclarationError, check_type
from streaming.lake import Lake
from streaming.sinks.postgres import Postgres
from streaming.sinks.sink import Delivered, Guarantee, Sink, Target


@dataclass(frozen=True)
class TwoPhase(Target):
    """Each row goes into the table of every one of `databases`, by a commit in two phases.

    A batch is written into each, and each promises to commit it (`prepare transaction`), before the first one does. A
    process that dies in between is followed by one that finds what was prepared, and commits it everywhere, or nowhere.
    For the instant between two commits a reader may see the rows in one database and not yet in the next; while a
    database is away that has promised, it gets them when it is back.

    A row that one of them refuses is in none, and becomes a dead letter; while one is away all wait. Keys, revisions
    and tables are as `Postgres` says. Each server needs `max_prepared_transactions` of one or more per delivery, and
    the account the right to create tables in the schema, in which rows are staged.

    Raises:
        DeclarationError: fewer than two databases, one of them twice, or keys that differ.
    """

    databases: tuple[Postgres, ...]
    batch: int = 10_000

    kind: ClassVar[str] = "postgres"
    guarantee: ClassVar[Guarantee] = "exactly once"
    keeps_keys: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_type("databases of TwoPhase", self.databases, tuple, "a tuple, such as (Postgres('a'), Postgres('b'))")
        for database in self.databases:
            check_type("each of databases of TwoPhase", database, Postgres, "a table, such as Postgres('orders')")
        connections = [database.connection for database in self.databases]
        if len(connections) < 2 or len({*connections}) < len(connections):
            raise DeclarationError(
                f"the databases of TwoPhase are {connections}; give two or more, each with a connection of its own: "
                "tables of one database are written together by a delivery to one of them and a trigger, or a view."
            )
        keys = {database.key for database in self.databases}
        if len(keys) > 1:
            raise DeclarationError(
                f"the tables of TwoPhase have different keys: {sorted(keys)}; give each the same, or none."
            )

    @property
    def key(self) -> tuple[str, ...]:  # type: ignore[override]
        """That of every table."""
        return self.databases[0].key

    @property
    def address(self) -> str:
        """All of them."""
        return " and ".join(database.address for database in self.databases)

    def datasets(self, lake: Lake) -> tuple[Dataset, ...]:
        """The table in each database."""
        return tuple(dataset for database in self.databases for dataset in database.datasets(lake))

    def connect(self, lake: Lake, delivered: Delivered) -> Sink:
        """Connects to each when it is used first."""
        from streaming.sinks.two_phase_sink import PreparedPostgres, TwoPhaseSink

        return TwoPhaseSink(
            [
                PreparedPostgres(database.connection, database.table.split("."), database.address, delivered, place)
                for place, database in enumerate(self.databases)
            ],
            delivered,
        )
