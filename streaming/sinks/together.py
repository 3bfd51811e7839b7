"""A row in Postgres and an object in a store for each row: both, or neither as far as readers can see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from streaming.base import DeclarationError, check_not_reserved, check_type
from streaming.lake import Lake
from streaming.sinks.objects import Objects
from streaming.sinks.postgres import Postgres
from streaming.sinks.postgres_sink import PostgresSink
from streaming.sinks.sink import Delivered, Guarantee, Sink, Target
from streaming.sinks.together_sink import TogetherSink


@dataclass(frozen=True)
class Together(Target):
    """Each row is inserted into the table of `database`, and its object put into `store`.

    The object is put first, under its final name; then the row is committed with the object's URL in the column `blob`.
    The row is the proof: an object that no row names does not count, and is removed. The object is the row in the
    store's format, or the delivered column `content` (text or bytes), which the table then does not get.

    A row that either refuses is in neither, and becomes a dead letter; while one of the two is away both wait.

    Raises:
        DeclarationError: the table is to keep keys, or a name cannot be a column.
    """

    database: Postgres
    store: Objects
    blob: str = "blob"
    content: str | None = None
    batch: int = 1_000

    kind: ClassVar[str] = "postgres"
    guarantee: ClassVar[Guarantee] = "exactly once"
    takes_changes: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_type("database of Together", self.database, Postgres, "a table, such as Postgres('orders')")
        check_type("store of Together", self.store, Objects, "a place, such as Objects('s3://bucket/orders')")
        for column in filter(None, (self.blob, self.content)):
            check_not_reserved(column)
        if self.database.key:
            raise DeclarationError(
                f"key={self.database.key!r} of table {self.database.table!r} would replace rows, and leave their "
                "objects behind; leave it out of Together, and let a unique constraint refuse what is there already."
            )

    @property
    def address(self) -> str:
        """Both."""
        return f"{self.database.address} and {self.store.address}"

    def connect(self, lake: Lake, delivered: Delivered) -> Sink:
        """Connects to both when it is used first.

        Raises:
            SinkError: an environment variable of the store is not set.
        """
        alone = Delivered(delivered.name, delivered.identity)
        database = PostgresSink(self.database.connection, self.database.table.split("."), self.database.address, alone)
        return TogetherSink(database, self.store.open(), self.store.layout, alone, blob=self.blob, content=self.content)
