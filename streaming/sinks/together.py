"""A row in Postgres and an object in a store for each row: both, or neither as far as readers can see."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from streaming.base import Dataset, DeclarationError, SinkError, check_not_reserved, check_type
from streaming.lake import Lake
from streaming.sinks.encoding import contents
from streaming.sinks.files import Attempts, FileLayout, file_name_of
from streaming.sinks.objects import Objects
from streaming.sinks.postgres import Postgres
from streaming.sinks.sink import Comparison, Delivered, Guarantee, NumberedBatch, PutAside, RefusedRow, Sink, Target

if TYPE_CHECKING:
    from streaming.sinks.object_store import ObjectStore
    from streaming.sinks.postgres_sink import PostgresSink

_NAMED = 5
_NO_CONTENT = "The column of the object's content is null."


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

    def datasets(self, lake: Lake) -> tuple[Dataset, ...]:
        """Those of both."""
        return (*self.database.datasets(lake), *self.store.datasets(lake))

    def connect(self, lake: Lake, delivered: Delivered) -> Sink:
        """Connects to both when it is used first.

        Raises:
            SinkError: an environment variable of the store is not set.
        """
        from streaming.sinks.postgres_sink import PostgresSink

        alone = Delivered(delivered.name, delivered.identity)
        database = PostgresSink(self.database.connection, self.database.table.split("."), self.database.address, alone)
        return _TogetherSink(
            database, self.store.open(), self.store.layout, alone, blob=self.blob, content=self.content
        )


class _TogetherSink(Sink):
    """The progress is the database's, in the transaction of the rows; `blob` and `content` are as `Together` says."""

    def __init__(
        self,
        database: PostgresSink,
        store: ObjectStore,
        layout: FileLayout,
        delivered: Delivered,
        *,
        blob: str,
        content: str | None,
    ) -> None:
        self._database = database
        self._store = store
        self._layout = layout
        self._blob = blob
        self._content = content
        self._name = file_name_of(delivered)
        self._attempts = Attempts(store, self._name)

    def delivered_through(self, generation: int) -> int:
        return self._database.delivered_through(generation)

    def deliver(self, batch: NumberedBatch, put_aside: PutAside) -> None:
        with self._database.following(batch) as cursor:
            if cursor is None:
                return
            names = self._names(batch)
            contents = dict(zip(names, self._contents(batch), strict=True))
            self._attempts.begin(batch, names, partial(self._database.whole, cursor))
            errors = {name: _NO_CONTENT for name, content in contents.items() if content is None}
            errors |= self._store.put_each({name: content for name, content in contents.items() if content is not None})
            kept = [position for position, name in enumerate(names) if name not in errors]
            refused = {position: errors[name] for position, name in enumerate(names) if name in errors}
            for row in self._database.write(cursor, self._rows(batch, names, kept)):
                refused[kept[row.position]] = row.error
            put_aside([RefusedRow(position, refused[position]) for position in sorted(refused)])
            self._database.advance(cursor, batch)
            # Before the commit: whoever dies after it would not come back for them.
            self._store.remove([names[position] for position in refused])

    def count(self) -> int | None:
        return self._database.count()

    def compare(self, generation: int, expected: Iterable[pa.Table]) -> Comparison | None:
        """The rows by their values, the objects by their names: each named by one row."""
        comparison = self._database.compare(generation, (self._without_content(rows) for rows in expected))
        if comparison is None:
            return None
        named = {self._path(url) for url in self._database.values(self._blob)}
        begin = self._layout.begin(self._name)
        there = {path for path in self._store.paths() if path.rpartition("/")[2].startswith(begin)}
        alone = sorted(named ^ there)
        return Comparison(
            comparison.records,
            comparison.differing + len(alone),
            ("row or object", "rows or objects"),
            (*comparison.named, *alone)[:_NAMED],
        )

    def close(self) -> None:
        self._database.close()

    def _names(self, batch: NumberedBatch) -> Sequence[str]:
        """The name of the object of each row."""
        folders = {position: folder for folder, positions in self._layout.folders(batch) for position in positions}
        return [self._layout.file(folders[row], self._name, batch, row) for row in range(batch.rows.num_rows)]

    def _contents(self, batch: NumberedBatch) -> Iterator[bytes | None]:
        column = self._content
        if column is None:
            rows = batch.selected
            for position in range(rows.num_rows):
                yield b"".join(self._layout.format.encode(rows.slice(position, 1), self._layout.bytes_per_file))
            return
        if column not in batch.selected.column_names:
            raise SinkError(
                f"the content of the objects, column {column!r}, is not delivered; columns are: "
                f"{', '.join(batch.selected.column_names)}. Select it, or correct the name."
            )
        yield from contents(batch.rows[column])

    def _rows(self, batch: NumberedBatch, names: Sequence[str], kept: Sequence[int]) -> NumberedBatch:
        """The rows that are kept, with the URL of the object of each."""
        rows = self._without_content(batch.rows.take(pa.array(kept, pa.int64())))
        if self._blob in rows.column_names:
            raise SinkError(
                f"the column {self._blob!r} is delivered, and is to name the object of each row; give that "
                "another name with `blob`, or leave it out of what is selected."
            )
        urls = [f"{self._store.address}/{names[position]}" for position in kept]
        with_urls = rows.append_column(self._blob, pa.array(urls, pa.string()))
        return NumberedBatch(batch.delivery, batch.generation, batch.number, with_urls)

    def _without_content(self, rows: pa.Table) -> pa.Table:
        column = self._content
        return rows.drop_columns([column]) if column in rows.column_names else rows

    def _path(self, url: str) -> str:
        return url.removeprefix(f"{self._store.address}/")
