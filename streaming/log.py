"""The event log: one commit per batch, stamped by the clock; rejected rows and counts are reads of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming import delta, table_history
from streaming.archive import archive, archived, newest_archived
from streaming.clock import BatchSummary, Clock, ClockState, clock_from_json
from streaming.errors import FencedError, LogError
from streaming.intervals import from_micros, to_micros
from streaming.lake import Lake
from streaming.stream import Stream


@dataclass(frozen=True)
class Batch:
    """What one commit of the log says of itself.

    `number` is the log's own sequence; `query` and `query_batch` name the Spark batch it came from (null for a
    heartbeat and a repair); `state` is the clock when the batch was stamped, by the declaration `clock`, which may be
    another one later; `summary`, `rejected`, `late` (pairs per view) and `unassigned` (rows per view that are in no
    window) speak of its rows. `end_of_input`: a heartbeat that closes what is open, whatever the clock says.
    `source_times`: instants by which the source had half, a twentieth and a hundredth of the rows (null for others).
    """

    number: int
    query: str | None
    query_batch: int | None
    state: ClockState
    summary: BatchSummary
    clock: Clock
    rejected: int = 0
    late: dict[str, int] | None = None
    unassigned: dict[str, int] | None = None
    end_of_input: bool = False
    source_times: tuple[datetime, ...] | None = None

    @property
    def cause(self) -> Literal["source", "heartbeat", "repair"]:
        """What made the batch: rows of the source, no row at all, or rejected rows that came back."""
        if self.query is not None:
            return "source"
        return "repair" if self.summary.rows else "heartbeat"

    def to_json(self) -> dict[str, Any]:
        """The commit's `userMetadata`."""
        return {
            "batch": self.number,
            "query": self.query,
            "query_batch": self.query_batch,
            "clock": self.state.to_json(),
            "summary": self.summary.to_json(),
            "declared": self.clock.to_json(),
            "rejected": self.rejected,
            "late": self.late or {},
            "unassigned": self.unassigned or {},
            "end_of_input": self.end_of_input,
            "source_times": None if self.source_times is None else [to_micros(time) for time in self.source_times],
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Batch:
        """The inverse of `to_json`."""
        times = value.get("source_times")
        return cls(
            number=value["batch"],
            query=value["query"],
            query_batch=value["query_batch"],
            state=ClockState.from_json(value["clock"]),
            summary=BatchSummary.from_json(value["summary"]),
            clock=clock_from_json(value["declared"]),
            rejected=value["rejected"],
            late=value["late"],
            unassigned=value["unassigned"],
            end_of_input=value.get("end_of_input", False),
            source_times=None if times is None else tuple(from_micros(time) for time in times),
        )


def batches(lake: Lake, stream: Stream, version: int | None = None) -> list[Batch]:
    """Every batch of the log, at one Delta `version` or the newest, newest first.

    Of commits that were cleaned away there is what the archive kept.

    Raises:
        LogError: the log's history was cleaned away and is in no archive.
    """
    table = delta.open_table(lake.log(stream), version)
    if table is None:
        return []
    # In this order: what is cleaned away between the two reads was archived before.
    commits = table_history.commits(table)
    live = {batch.number: batch for batch in _described(commits)}
    kept = archived(lake, stream)
    # The archive may know of batches that came after the version.
    newest = max(live, default=None)
    past = {number for number in kept.keys() - live.keys() if newest is None or number < newest}
    known = live | {number: Batch.from_json(kept[number]) for number in past}
    if not known:
        _refuse_forgotten(lake, stream, commits)
    return [known[number] for number in sorted(known, reverse=True)]


def archive_batches(lake: Lake, stream: Stream) -> int:
    """Archive the batches that are not in the archive yet; returns how many they were."""
    history = table_history.history(lake.log(stream))
    return archive(lake, stream, {batch.number: batch.to_json() for batch in _described(history)})


def head(lake: Lake, stream: Stream, version: int | None = None) -> Batch | None:
    """The newest batch, at one Delta `version` or the newest, or None where the log is empty or missing.

    Raises:
        LogError: the log's history was cleaned away and is in no archive.
    """
    table = delta.open_table(lake.log(stream), version)
    return None if table is None else _newest(lake, stream, table)


def newest_before(lake: Lake, stream: Stream, version: int | None = None) -> int | None:
    """The number of the newest batch, or of the one that was newest before a Delta `version`; None where none was."""
    table = delta.open_table(lake.log(stream))
    if table is None:
        return None
    since = [] if version is None else table_history.commits(table, max(0, table.version() + 1 - version))
    later = min((batch.number for batch in _described(since)), default=None)
    if later is None:
        newest = _newest(lake, stream, table)
        return None if newest is None else newest.number
    return later - 1 if later else None


def version_after(lake: Lake, stream: Stream, number: int) -> int | None:
    """The Delta version of the log that ends with batch `number`; None where its commit was cleaned away."""
    for commit in table_history.history(lake.log(stream)):
        for batch in _described([commit]):
            if batch.number <= number:
                return int(commit["version"]) if batch.number == number else None
    return None


def _newest(lake: Lake, stream: Stream, table: DeltaTable) -> Batch | None:
    for limit in (1, 100, None):
        commits = table_history.commits(table, limit)
        for batch in _described(commits):
            return batch
    kept = newest_archived(lake, stream)
    if kept is None:
        _refuse_forgotten(lake, stream, commits)
        return None
    return Batch.from_json(kept)


def _refuse_forgotten(lake: Lake, stream: Stream, commits: list[dict[str, Any]]) -> None:
    if not commits or commits[-1]["version"] > 0:
        raise LogError(
            f"the history of the log {lake.log(stream)!r} was cleaned away, and no archive at "
            f"{lake.batches(stream)!r} tells of its batches, so the clock is not known. Restore the log's _delta_log "
            "or the archive from a backup; clean up with `maintain` only, which archives first."
        )


def _described(commits: Iterable[dict[str, Any]]) -> Iterator[Batch]:
    """The batches of `commits`; those without a clock, such as compaction, are passed over."""
    for commit in commits:
        if isinstance(commit["userMetadata"], dict) and "clock" in commit["userMetadata"]:
            yield Batch.from_json(commit["userMetadata"])


def append(frame: DataFrame, lake: Lake, stream: Stream, txn: delta.Txn | None, batch: Callable[[], Batch]) -> Batch:
    """Append the rows of one batch in one commit; `batch` describes them and is called once they are written.

    Raises:
        FencedError: the batch before it is not the newest of the log any more, or not yet.
    """
    uri = lake.log(stream)
    description = stream.description or f"Event log of {stream.name}"
    delta.create(uri, frame.schema, append_only=True, description=description)
    described: list[Batch] = []

    def metadata() -> dict[str, Any]:
        described.append(batch())
        return described[0].to_json()

    def fence(table: DeltaTable) -> None:
        """The stamp is right only if nothing was appended since the clock was read: a process that slept sees it."""
        newest, number = _newest(lake, stream, table), described[0].number
        follows = 0 if newest is None else newest.number + 1
        if number != follows:
            raise FencedError(
                f"batch {number} of {stream.name!r} was not appended: batch {follows} is next in the log, so another "
                "process has taken over while this one was away. Nothing is lost; let the other one run, or stop it "
                f"and start again (`tidemark status {stream.name}` names it)."
            )

    delta.append(
        frame,
        uri,
        txn=txn,
        metadata=metadata,
        statistics=(stream.event_time, "_batch"),
        diverse=(stream.event_time, "_origin.position"),
        fence=fence,
    )
    return described[0]


def read_log(spark: SparkSession, lake: Lake, stream: Stream, version: int | None = None) -> DataFrame:
    """The log as a batch frame, at one Delta `version` or the newest.

    Raises:
        LogError: nothing has been ingested yet.
    """
    uri = lake.log(stream)
    if not delta.exists(uri):
        raise LogError(
            f"stream {stream.name!r} has no event log at {uri!r} yet; run `tidemark run {stream.name}` first."
        )
    return delta.read(spark, uri, version)


def valid(log: DataFrame) -> DataFrame:
    """The valid rows."""
    return log.where(F.col("_day").isNotNull())


def rejected(log: DataFrame) -> DataFrame:
    """The rejected rows that were not repaired: the dead letters, with payload and reasons."""
    repairs = repaired(log).select(
        F.col("_origin.path").alias("_repaired_path"),
        F.col("_origin.position").alias("_repaired_position"),
        F.col("_origin.repairs").alias("_repaired_batch"),
    )
    same = [
        F.col("_origin.path").eqNullSafe(F.col("_repaired_path")),
        F.col("_origin.position").eqNullSafe(F.col("_repaired_position")),
        F.col("_batch") == F.col("_repaired_batch"),
    ]
    return ever_rejected(log).join(repairs, same, "left_anti")


def ever_rejected(log: DataFrame) -> DataFrame:
    """Every row that was rejected when it came, also those that were repaired since."""
    return log.where(F.col("_day").isNull() & F.col("_rejected").isNotNull())


def repaired(log: DataFrame) -> DataFrame:
    """The valid rows that repair a rejected one; `_origin.repairs` is the batch of that one."""
    return valid(log).where(F.col("_origin.repairs").isNotNull())
