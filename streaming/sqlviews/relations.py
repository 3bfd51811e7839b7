"""Relations of an SQL view: what stands of each source at a position, and what was added and taken back between two."""

from __future__ import annotations

import json
import zlib
from abc import ABC, abstractmethod
from collections.abc import Sequence

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import (
    ADDED,
    BATCH,
    INGESTED_AT,
    LAST_MILLISECOND,
    MICROSECOND,
    ORIGIN,
    REASON,
    REVISION,
    SIGN,
    STAMP,
    NoVersionError,
    SourceError,
)
from streaming.changes import Publishing, differences, revision_of
from streaming.declare import CHANGES, CURRENT, ExternalTable, Operator, Stream, View
from streaming.lake import Lake
from streaming.log import LogFiles, sign_of_row, standing, valid
from streaming.revisions import followed_by, net, standing_rows
from streaming.tables import EVER, Keys, TimeRange, delta, newest_commits, read_files, sql_type, storage

MARK = "_mark"
"""The column of `Relation.marked` by which a row is known."""
_VERSION_BITS = 32


class Relation(ABC):
    """A table that a query reads by a `name` in `from`.

    A position is a number, -1 before the first row. That of streams and operators never falls.
    """

    name: str
    columns: tuple[str, ...]

    @abstractmethod
    def none(self, spark: SparkSession) -> DataFrame:
        """No row, with `columns`."""

    @abstractmethod
    def has_changed(self, after: int, through: int) -> bool:
        """True if rows may have been added or taken back between two positions. Starts no Spark."""

    @abstractmethod
    def now(self, spark: SparkSession, through: int) -> DataFrame:
        """The rows that stand at a position: `columns`.

        Raises:
            NoVersionError: that position cannot be read any more.
        """

    @property
    def time(self) -> str | None:
        """The column of times by which rows can be read without all others, None for none."""
        return None

    def near(self, spark: SparkSession, through: int, times: TimeRange) -> DataFrame:
        """The rows that stand at a position, among them all of some times: `columns`."""
        return self.now(spark, through)

    def among(
        self, through: int, keys: Keys, columns: Sequence[str], most: int, times: TimeRange = EVER
    ) -> pa.Table | None:
        """Columns of the rows that stand at a position and have one of the keys, among them all of some times.

        It starts no Spark. None where that is not to be had without, or these are more than `most`.
        """
        return None

    def marked(self, spark: SparkSession, through: int) -> DataFrame:
        """The rows that stand at a position, with a text by which each is known in MARK: equal rows have the same.

        Raises:
            NoVersionError: that position cannot be read any more.
        """
        rows = self.now(spark, through)
        return rows.withColumn(MARK, F.to_json(F.struct(*(f"`{name}`" for name in self.columns))))

    @abstractmethod
    def signed(self, spark: SparkSession, after: int, through: int) -> DataFrame | None:
        """The rows that were added and taken back between two positions: `columns` and `_change`, 1 or -1.

        None where nobody can tell any more, so that any row may have changed.
        """

    def changed(self, after: int, through: int, columns: Sequence[str], most: int) -> pa.Table | None:
        """Columns of the rows that were added or taken back between two positions; starts no Spark.

        None where that is not to be had without, or these are more than `most`.
        """
        return None

    def _named(self, rows: DataFrame, *more: str) -> DataFrame:
        return rows.select(*(f"`{name}`" for name in self.columns), *more)


class StreamRelation(Relation):
    """The rows of a stream that stand; its positions are the batches of its log."""

    def __init__(self, lake: Lake, stream: Stream) -> None:
        self.name = stream.name
        self.columns = stream.columns
        self._lake = lake
        self._stream = stream
        self._files = LogFiles(lake, stream)

    def none(self, spark: SparkSession) -> DataFrame:
        return self._named(self._files.none(spark))

    def has_changed(self, after: int, through: int) -> bool:
        return through > after and self._files.has_rows(after, through)

    def now(self, spark: SparkSession, through: int) -> DataFrame:
        if self._stream.revised:
            table = self._standing_at(through)
            if table is not None:
                return standing_rows(spark, self._lake, self._stream, table.version())
        return self.standing_of(self._files.with_batches(spark, -1, through))

    @property
    def time(self) -> str | None:
        is_plain = not self._stream.takes_back and self._stream.event_time in self.columns
        return self._stream.event_time if is_plain else None

    def near(self, spark: SparkSession, through: int, times: TimeRange) -> DataFrame:
        if self._files.can_retract():
            return self.now(spark, through)
        since, until = times
        before = None if until >= LAST_MILLISECOND else until + MICROSECOND
        return self.standing_of(self._files.with_times(spark, since, before, through))

    def among(
        self, through: int, keys: Keys, columns: Sequence[str], most: int, times: TimeRange = EVER
    ) -> pa.Table | None:
        if self._stream.revised:
            table = self._standing_at(through)
            if table is None:
                return None
            rows = delta.among(table, keys, (*columns, ADDED), most)
            return None if rows is None else rows.filter(rows[ADDED].is_valid()).select(columns)
        # Rows that take back others are among all of them.
        takes_back = self._stream.takes_back or self._files.can_retract()
        return None if takes_back else self._files.rows(columns, -1, through, most, keys, times)

    def _standing_at(self, through: int) -> DeltaTable | None:
        """The open table of what stands of a stream with a key, where that is of this position."""
        table = delta.open_table(self._lake.standing(self._stream))
        # Where a batch came meanwhile, more than this position stands there.
        return table if table is not None and followed_by(table) == through else None

    def standing_of(self, log: DataFrame) -> DataFrame:
        """The rows of a frame of the log that stand: `columns`."""
        return self._named(self._standing(log))

    def marked(self, spark: SparkSession, through: int) -> DataFrame:
        """The rows that stand, with where and when each came, which is its mark."""
        rows = self._standing(self._files.with_batches(spark, -1, through))
        place = F.to_json(F.struct(BATCH, ORIGIN))
        return self._named(rows.withColumn(MARK, place), BATCH, ORIGIN, STAMP, INGESTED_AT, MARK)

    def _standing(self, log: DataFrame) -> DataFrame:
        return net(log) if self._stream.takes_back else standing(valid(log))

    def signed(self, spark: SparkSession, after: int, through: int) -> DataFrame:
        return self.signed_in(self._files.with_batches(spark, after, through))

    def changed(self, after: int, through: int, columns: Sequence[str], most: int) -> pa.Table | None:
        return self._files.rows(columns, after, through, most)

    def signed_in(self, rows: DataFrame) -> DataFrame:
        """The rows of a frame of the log, as those that are added and taken back: `columns` and `_change`."""
        sign = F.col(ORIGIN)["change"] if self._stream.takes_back else sign_of_row(rows)
        return self._named(rows.withColumn(SIGN, sign.cast("int")), SIGN)


class PinnedRelation(Relation):
    """A relation of which a step takes what is newest when it begins."""

    @abstractmethod
    def newest(self) -> int:
        """The newest position; -1 where there is nothing yet."""

    @abstractmethod
    def words(self, position: int) -> str:
        """A position for a person to read."""


class OperatorRelation(PinnedRelation):
    """The current results of an operator; its positions are the revisions of its changes."""

    def __init__(self, lake: Lake, operator: Operator, name: str = "") -> None:
        self.name = name or operator.name
        self.columns = operator.columns
        self._operator = operator
        self._current, self._changes = lake.table(operator, CURRENT), lake.table(operator, CHANGES)
        self._publishing = Publishing(lake, operator)

    def newest(self) -> int:
        table = delta.open_table(self._current)
        return -1 if table is None else revision_of(table)

    def words(self, position: int) -> str:
        return f"revision {position:,} of {self.name}"

    def none(self, spark: SparkSession) -> DataFrame:
        return self._named(delta.read(spark, self._current).limit(0))

    def has_changed(self, after: int, through: int) -> bool:
        return through > after

    def among(
        self, through: int, keys: Keys, columns: Sequence[str], most: int, times: TimeRange = EVER
    ) -> pa.Table | None:
        table = delta.open_table(self._current)
        if table is None or revision_of(table) != through:
            return None
        return delta.among(table, keys, columns, most)

    def now(self, spark: SparkSession, through: int) -> DataFrame:
        table = delta.open_table(self._current)
        if table is not None:
            at = revision_of(table)
            if at == through:
                return self._named(delta.read(spark, self._current, table.version()))
            for commit in newest_commits(table):
                says = commit["userMetadata"]
                if isinstance(says, dict) and says.get("revision") == through:
                    return self._named(delta.read(spark, self._current, commit["version"]))
        raise NoVersionError(
            f"revision {through} of what is current of {self._operator.kind_name} {self.name!r} cannot be read any "
            "more: its files were cleaned away.",
            f"Run `tidemark run {self._operator.folder}`, which reads the newest.",
            operator=self.name,
            value=through,
        )

    def signed(self, spark: SparkSession, after: int, through: int) -> DataFrame | None:
        if after < self._publishing.begins():
            return None
        rows = delta.read(spark, self._changes)
        between = (F.col(REVISION) > after) & (F.col(REVISION) <= through)
        return self._named(rows.where(between), SIGN)


class ExternalRelation(PinnedRelation):
    """The rows of a Delta table that somebody else writes.

    Its positions are versions of the table, each with a number of the table itself: another table in its place has
    other rows at the same version.
    """

    def __init__(self, lake: Lake, table: ExternalTable) -> None:
        self.name = table.name
        self.columns = table.columns
        self._declared = table
        self._uri = lake.path(table.place)

    def newest(self) -> int:
        table = delta.open_table(self._uri)
        if table is None:
            raise SourceError(
                f"there is no Delta table at {self._uri!r}, which external table {self.name!r} is declared to be",
                f"Create it with the columns {self._declared.schema}, or correct its uri.",
                value=self._uri,
            )
        if misfit := self._misfit(table):
            raise SourceError(
                f"external table {self.name!r} is declared as {self._declared.schema}, but in {self._uri!r} {misfit}.",
                "Correct the schema of the external table.",
                value=self._uri,
            )
        return _position_of(table)

    def words(self, position: int) -> str:
        return f"version {_version_in(position):,} of {self.name}"

    def none(self, spark: SparkSession) -> DataFrame:
        return self.now(spark, self.newest()).limit(0)

    def has_changed(self, after: int, through: int) -> bool:
        return through != after

    def now(self, spark: SparkSession, through: int) -> DataFrame:
        table = self._at(through)
        if table is None or (table.version() != delta.version_of(self._uri) and storage.missing_files(table)):
            raise NoVersionError(
                f"{self.words(through)} at {self._uri!r} cannot be read any more: it or its files were cleaned away, "
                "or another table is in its place.",
                "The next step of the view reads the newest version, and computes everything.",
                value=through,
            )
        return self._named(delta.read(spark, self._uri, table.version()))

    def signed(self, spark: SparkSession, after: int, through: int) -> DataFrame | None:
        before, table = self._at(after), self._at(through)
        if before is None or table is None or self._misfit(before) or storage.missing_files(before):
            return None
        were, are = _differing(spark, self._uri, before, table)
        first = self._named(are).withColumn(REASON, F.lit(""))
        return self._named(differences(first, self._named(were), self.columns), SIGN)

    def _at(self, position: int) -> DeltaTable | None:
        """The table at a position, opened; None where that cannot be had any more."""
        try:
            table = delta.open_table(self._uri, _version_in(position))
        except (DeltaError, FileNotFoundError):
            return None
        return table if table is not None and _position_of(table) == position else None

    def _misfit(self, table: DeltaTable) -> str:
        """The first declared column that an open table does not have, or has with another type; empty for none."""
        there = {field["name"]: sql_type(field["type"]) for field in json.loads(table.schema().to_json())["fields"]}
        for name, kind in self._declared.types.items():
            if name not in there:
                return f"there is no column {name!r}; there are: {', '.join(there)}"
            if there[name] != kind.replace(", ", ","):
                return f"column {name!r} is of type {there[name]}"
        return ""


def _position_of(table: DeltaTable) -> int:
    """The version of an open table, below a number of the table."""
    return zlib.crc32(str(table.metadata().id).encode()) >> 1 << _VERSION_BITS | table.version()


def _version_in(position: int) -> int:
    return position & (1 << _VERSION_BITS) - 1


def _differing(spark: SparkSession, uri: str, before: DeltaTable, table: DeltaTable) -> tuple[DataFrame, DataFrame]:
    """Rows of two versions of a table in files that only one of them has, or all where files alone do not tell rows."""
    then, now = (dict.fromkeys(map(str, each.get_add_actions()["path"].to_pylist())) for each in (before, table))
    # A path with these is of a clone, or encoded.
    is_encoded = any(sign in path for path in (*then, *now) for sign in (":", "%"))
    if is_encoded or _is_more(before) or _is_more(table):
        return delta.read(spark, uri, before.version()), delta.read(spark, uri, table.version())
    removed, added = [path for path in then if path not in now], [path for path in now if path not in then]
    # By the columns of the newer one: what an older file does not have is null in it.
    return read_files(spark, table, uri, removed), read_files(spark, table, uri, added)


def _is_more(table: DeltaTable) -> bool:
    """True if more than the files of an open table tells its rows: partitions, deletes, or other names of columns."""
    return bool(table.metadata().partition_columns) or table.protocol().min_reader_version > 1


def relations_of(lake: Lake, view: View) -> tuple[tuple[StreamRelation, ...], tuple[PinnedRelation, ...]]:
    """The relations of a view: those of streams, and all others."""
    operators = (OperatorRelation(lake, operator) for operator in view.reads_current)
    external = (
        ExternalRelation(lake, table) if table.operator is None else OperatorRelation(lake, table.operator, table.name)
        for table in view.external
    )
    return tuple(StreamRelation(lake, stream) for stream in view.follows), (*operators, *external)
