"""Relations of an SQL view: what stands of each source at a position, and what was added and taken back between two."""

from __future__ import annotations

from abc import ABC, abstractmethod

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import ORIGIN, REVISION, SIGN, OperatorError
from streaming.changes import Publishing, revision_of
from streaming.declare import CHANGES, CURRENT, Operator, Stream, View
from streaming.lake import Lake
from streaming.log import LogFiles, sign_of_row, standing, valid
from streaming.revisions import followed_by, net, standing_rows
from streaming.tables import delta, newest_commits


class Relation(ABC):
    """A table that a query reads by a `name` in `from`.

    A position is a number that never falls, -1 before the first row.
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
            OperatorError: that position cannot be read any more.
        """

    @abstractmethod
    def signed(self, spark: SparkSession, after: int, through: int) -> DataFrame | None:
        """The rows that were added and taken back between two positions: `columns` and `_change`, 1 or -1.

        None where nobody can tell any more, so that any row may have changed.
        """

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
            table = delta.open_table(self._lake.standing(self._stream))
            # Where a batch came meanwhile, more than this position stands there.
            if table is not None and followed_by(table) == through:
                return standing_rows(spark, self._lake, self._stream, table.version())
        return self.standing_of(self._files.with_batches(spark, -1, through))

    def standing_of(self, log: DataFrame) -> DataFrame:
        """The rows of a frame of the log that stand: `columns`."""
        return self._named(net(log) if self._stream.takes_back else standing(valid(log)))

    def signed(self, spark: SparkSession, after: int, through: int) -> DataFrame:
        rows = self._files.with_batches(spark, after, through)
        sign = F.col(ORIGIN)["change"] if self._stream.takes_back else sign_of_row(rows)
        return self._named(rows.withColumn(SIGN, sign.cast("int")), SIGN)


class OperatorRelation(Relation):
    """The current results of an operator; its positions are the revisions of its changes."""

    def __init__(self, lake: Lake, operator: Operator) -> None:
        self.name = operator.name
        self.columns = operator.columns
        self._operator = operator
        self._current, self._changes = lake.table(operator, CURRENT), lake.table(operator, CHANGES)
        self._publishing = Publishing(lake, operator)

    def newest(self) -> int:
        """The newest revision that is published; -1 for none."""
        table = delta.open_table(self._current)
        return -1 if table is None else revision_of(table)

    def none(self, spark: SparkSession) -> DataFrame:
        return self._named(delta.read(spark, self._current).limit(0))

    def has_changed(self, after: int, through: int) -> bool:
        return through > after

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
        raise OperatorError(
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


def relations_of(lake: Lake, view: View) -> tuple[tuple[StreamRelation, ...], tuple[OperatorRelation, ...]]:
    """The relations of a view: those of streams, and those of operators."""
    return (
        tuple(StreamRelation(lake, stream) for stream in view.follows),
        tuple(OperatorRelation(lake, operator) for operator in view.reads_current),
    )
