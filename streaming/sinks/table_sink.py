"""One batch into a table of files, whatever its format: one commit with the rows and the progress, or none."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import pyarrow as pa
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from streaming.base import REVISION, SinkError
from streaming.sinks.sink import (
    Comparison,
    Delivered,
    NumberedBatch,
    PutAside,
    Sink,
    check_follows,
)
from streaming.sinks.table_rows import (
    Bounds,
    Fit,
    Upsert,
    changes_of,
    compare_rows,
    grouped,
    kept_rows,
    with_kept_types,
    without_positions,
)

_ATTEMPTS = 8
_MOST_SMALL = 16
"""With so many small files an upsert brings them together, as it reads the keys of all files that may have its own.

One of so many batches looks for them, as that takes the list of all files.
"""
_WRITTEN_AT_ONCE = 64 * 2**20
"""Bytes of rows in memory that become one file."""
_SMALL = _WRITTEN_AT_ONCE // 8
"""Bytes of rows in memory below which a file counts as small; files brought together are larger, but for the last."""


class MovedMeanwhile(Exception):
    """Somebody else has committed to the table since it was looked at; nothing was written."""


@dataclass(frozen=True)
class StoredFile:
    """A data file of a table: its `path`, its size in bytes, and the number of its rows; None where nobody knows it."""

    path: str
    size: int
    rows: int | None


class StoredTable(ABC):
    """A table as it is at one version, for one delivery; a commit follows that version and no other."""

    @property
    @abstractmethod
    def columns(self) -> pa.Schema:
        """Its columns."""

    @abstractmethod
    def check(self, *, upserts: bool) -> None:
        """Refuse a table that rows must not be written to as they are here.

        Raises:
            SinkError: with what it has, and what to do.
        """

    @abstractmethod
    def newest(self, generation: int) -> int:
        """The newest batch of a generation that is there; -1 for none.

        Raises:
            ProgressError: the progress there is of another delivery of that name.
        """

    @abstractmethod
    def newest_generation(self) -> int:
        """The newest generation of which there is a batch; -1 for none."""

    @abstractmethod
    def files(self, bounds: Bounds | None = None) -> Sequence[StoredFile]:
        """The files, but for those that have no row within the bounds."""

    @abstractmethod
    def read(self, file: StoredFile, columns: Sequence[str]) -> pa.Table:
        """Some columns of a file, the rows always in one order; those that it was written without are null."""

    @abstractmethod
    def count(self) -> int:
        """The number of rows."""

    @abstractmethod
    def commit(
        self, batch: NumberedBatch, added: pa.Schema, rows: Iterable[pa.Table], replaced: Sequence[StoredFile]
    ) -> None:
        """Commit the number of the batch and its `rows`, a file each, in place of the files that are `replaced`.

        `added` are columns that the table gets, or whose structs get further fields.

        Raises:
            MovedMeanwhile: it is not at this version any more.
        """


class TableSink(Sink):
    """A table of files, opened anew for each batch. With `upserts` it has one row for each key, if there is one."""

    def __init__(self, address: str, delivered: Delivered, *, upserts: bool) -> None:
        self.address = address
        self._delivered = delivered
        self._key = delivered.key if upserts else ()

    @abstractmethod
    def open(self) -> StoredTable | None:
        """The table at its newest version; None where there is none."""

    @abstractmethod
    def create(self, columns: pa.Schema) -> StoredTable:
        """The table, made empty where it is not there."""

    @abstractmethod
    def telling(self) -> AbstractContextManager[None]:
        """Turn what the libraries raise within into a `SinkError`, without anything secret."""

    def delivered_through(self, generation: int) -> int:
        with self.telling():
            table = self.open()
            return -1 if table is None else table.newest(generation)

    def deliver(self, batch: NumberedBatch, put_aside: PutAside) -> None:
        attempts = Retrying(
            retry=retry_if_exception_type(MovedMeanwhile),
            stop=stop_after_attempt(_ATTEMPTS),
            wait=wait_random_exponential(0.05, max=2),
            reraise=True,
        )
        try:
            for attempt in attempts:
                with attempt, self.telling():
                    self._deliver(batch, put_aside)
        except MovedMeanwhile as error:
            raise SinkError(
                f"{self.address} was changed by others {_ATTEMPTS} times while batch {batch.key} was written, so "
                "nothing of it is there. The batch is sent again by itself.",
                address=self.address,
            ) from error

    def count(self) -> int:
        with self.telling():
            return self._there().count()

    def compare(self, generation: int, expected: Iterable[pa.Table]) -> Comparison | None:
        """By the columns that are selected; rows that somebody else has written count as any."""
        if generation and not self._key:
            # Rows of the generations before lie among them.
            return None
        with self.telling():
            table = self._there()
            pieces = iter(expected)
            first = self._as_kept(next(pieces))
            fit = Fit.of(first.schema, table.columns, self.address)
            names = first.column_names

            def should() -> Iterator[pa.Table]:
                yield fit.aligned(first).select(names)
                for rows in pieces:
                    yield fit.aligned(self._as_kept(rows)).select(names)

            stored = [name for name in names if name in table.columns.names] or table.columns.names[:1]
            there = (fit.aligned(table.read(file, stored)).select(names) for file in table.files())
            return compare_rows(should(), there, self._key)

    def _as_kept(self, rows: pa.Table) -> pa.Table:
        batch = NumberedBatch(self._delivered.name, 0, 0, rows)
        return with_kept_types(batch.selected if self._key else batch.messages)

    def _there(self) -> StoredTable:
        table = self.open()
        if table is None:
            raise SinkError(
                f"{self.address} is not there any more, and rows were delivered to it. Restore it with them; or "
                "`tidemark redeliver` with `--all` delivers everything into a new one.",
                address=self.address,
            )
        return table

    def _deliver(self, batch: NumberedBatch, put_aside: PutAside) -> None:
        table = self.open()
        newest = -1 if table is None else table.newest(batch.generation)
        if newest >= batch.number:
            return
        check_follows(batch, newest, -1 if table is None else table.newest_generation(), self.address)
        rows = kept_rows(batch, self._key)
        if table is None:
            # Refused here, two columns whose names differ in case alone leave no table behind.
            table = self.create(Fit.of(rows.schema, pa.schema([]), self.address).columns)
        table.check(upserts=bool(self._key))
        fit = Fit.of(rows.schema, table.columns, self.address)
        refused = fit.refused(rows)
        put_aside(refused)
        taken, _ = batch.without({row.position for row in refused})
        given = fit.aligned(kept_rows(taken, self._key))
        if not self._key:
            table.commit(batch, fit.added, grouped([given], _WRITTEN_AT_ONCE), ())
            return
        upsert = Upsert(given, self._key, changes_of(taken))
        try:
            replaced = self._replaced(table, fit, upsert, Bounds.of(given, self._key[0]))
            if batch.number % _MOST_SMALL == 0:
                replaced |= dict.fromkeys(_small_files(table, given, replaced), ())
            written = given.take(pa.array(upsert.written(), pa.int64()))
        finally:
            upsert.close()
        rewritten = (
            without_positions(fit.aligned(table.read(file, table.columns.names)), positions)
            for file, positions in replaced.items()
        )
        table.commit(batch, fit.added, grouped(_both(written, rewritten), _WRITTEN_AT_ONCE), list(replaced))

    def _replaced(
        self, table: StoredTable, fit: Fit, upsert: Upsert, bounds: Bounds | None
    ) -> dict[StoredFile, Sequence[int]]:
        """The files with a row that does not stay, each with the positions of these."""
        keys = fit.only((*self._key, REVISION))
        there = [name for name in keys.columns.names if name in table.columns.names]
        if not {*there}.issuperset(self._key):
            # A key column that is added is null in every row that is there, and so is a key of these.
            bounds = None
        replaced: dict[StoredFile, Sequence[int]] = {}
        # Of a table without any of them some column tells how many rows there are.
        there = there or table.columns.names[:1]
        for file in table.files(bounds):
            positions = upsert.replaced(keys.aligned(table.read(file, there)))
            if positions:
                replaced[file] = positions
        return replaced


def _small_files(table: StoredTable, given: pa.Table, replaced: Collection[StoredFile]) -> Sequence[StoredFile]:
    """The small files to be brought together, where there are many: by their rows, taken to be as large as those given.

    Not by their bytes: rows that compress well would be written again with each batch.
    """
    if not given.num_rows:
        return ()
    most = _SMALL * given.num_rows // given.nbytes
    small = [file for file in table.files() if file.rows is not None and file.rows < most and file not in replaced]
    return small if len(small) >= _MOST_SMALL else ()


def _both(first: pa.Table, others: Iterable[pa.Table]) -> Iterator[pa.Table]:
    yield first
    yield from others
