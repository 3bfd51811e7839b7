"""The document that `tidemark status` prints with `--json`; see `documents` on what the fields promise."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from pydantic import BaseModel

from platform_assets.cli.documents import Document
from platform_assets.cli.retention_documents import RetentionDocument
from platform_assets.texts.positions import LogPosition
from streaming.base import BrokenModule
from streaming.declare import Pipeline
from streaming.operations import UndeclaredTable
from streaming.operators import FilterCounts
from streaming.service import Overview, ProcessStatus, QueryStatus


class HolderDocument(BaseModel):
    """The process that holds the pipeline, and for what: `stream`, `drain`, ..."""

    process: int
    host: str
    what: str


class FailureDocument(BaseModel):
    """The end of a stream process that was not asked for; see `streaming.declare.Failure`."""

    at: datetime
    batch: str
    error: str
    origins: str


class BacklogDocument(BaseModel):
    """The backlog of the sources: `items` of a `unit` (files, rows) with `size` bytes, and what is amiss with it."""

    items: int
    unit: str
    size: int | None
    warning: str


class QueryDocument(BaseModel):
    """A log's query, or a view: the batch that runs, the last one, and totals since the process was started.

    `behind`: batches of its logs that a view has not followed yet; `watermark`: that of its logs where it is.
    """

    running_batch: int | None
    running_since: datetime | None
    last_batch: int | None
    last_ended: datetime | None
    last_seconds: float | None
    batches: int
    rows: int
    state_rows: int | None
    state_bytes: int | None
    paused: str | None
    behind: int | None
    behind_since: datetime | None
    watermark: datetime | None


class LatencyDocument(BaseModel):
    """Seconds from the source to Delta, of the last two minutes."""

    p50: float
    p95: float
    p99: float


class ProcessDocument(BaseModel):
    """The stream process; counts are since its start, rates of the last two minutes.

    `catch_up_seconds`: until nothing waits in the sources, if that goes on to shrink as it does.
    """

    pid: int
    started: datetime
    phase: str
    slow: bool
    newest_batch: int | None
    watermark: datetime | None
    watermark_lag_seconds: float | None
    watermarks: dict[str, datetime]
    rejected_rows: int
    late_pairs: int
    input_rows_per_second: float
    processing_rows_per_second: float
    latency_seconds: LatencyDocument | None
    memory_bytes: int | None
    catch_up_seconds: float | None
    backlog: list[BacklogDocument]
    queries: dict[str, QueryDocument]


class ReceiverDocument(BaseModel):
    """A receiver: `state` since when and, while it waits, `why`; counts are since its start."""

    name: str
    address: str
    guarantee: str
    state: str
    since: datetime
    why: str
    rows: int
    landed: int
    files: int
    refused: int
    reconnects: int
    landed_at: datetime | None
    away_since: datetime | None


class PipelineDocument(BaseModel):
    """A pipeline: `state` since when and, where somebody must act, `why`; `process` is null where none runs."""

    pipeline: str
    state: str
    since: datetime | None
    why: str
    restarts: int
    holder: HolderDocument | None
    process: ProcessDocument | None
    failures: list[FailureDocument]
    receivers: list[ReceiverDocument]


class UndeclaredTableDocument(BaseModel):
    """A table of a view that is not declared."""

    view: str
    uri: str


class FilterDocument(BaseModel):
    """The counts of a business filter since its `table` was built: rows that came to it, and those that passed."""

    pipeline: str
    table: str
    rows_in: int
    kept: int
    removed: int


class LogDocument(BaseModel):
    """The newest batch of a stream's log, the watermark after it, and what waits in its source, in words.

    `waiting` is empty where the pipeline runs: its process says what waits.
    """

    pipeline: str
    stream: str
    newest_batch: int
    watermark: datetime | None
    waiting: str


class BrokenModuleDocument(BaseModel):
    """A module that cannot be used, so that what it declares is missing."""

    module: str
    file: str | None
    line: int | None
    reason: str


class StatusDocument(Document):
    """`tidemark status --json`."""

    lake: str
    at: datetime
    pipelines: list[PipelineDocument]
    left_tables: list[UndeclaredTableDocument]
    broken_modules: list[BrokenModuleDocument]
    filters: list[FilterDocument]
    retention: list[RetentionDocument]
    logs: list[LogDocument]

    @classmethod
    def of(
        cls,
        lake: str,
        at: datetime,
        overviews: Iterable[Overview],
        left: Iterable[UndeclaredTable],
        broken: Iterable[BrokenModule],
        filters: Iterable[tuple[Pipeline, str, FilterCounts]],
        retention: Iterable[RetentionDocument],
        logs: Iterable[LogPosition],
    ) -> StatusDocument:
        """The document of the streams as they are at an instant."""
        return cls(
            lake=lake,
            at=at,
            pipelines=[_pipeline(overview, at) for overview in overviews],
            left_tables=[UndeclaredTableDocument(view=table.operator, uri=table.uri) for table in left],
            broken_modules=[BrokenModuleDocument.model_validate(module, from_attributes=True) for module in broken],
            filters=[
                FilterDocument(
                    pipeline=pipeline.name,
                    table=table,
                    rows_in=counts.rows_in,
                    kept=counts.kept,
                    removed=counts.removed,
                )
                for pipeline, table, counts in filters
            ],
            retention=[*retention],
            logs=[LogDocument.model_validate(each, from_attributes=True) for each in logs],
        )


def _pipeline(overview: Overview, at: datetime) -> PipelineDocument:
    holder = overview.holder
    return PipelineDocument(
        pipeline=overview.pipeline.name,
        state=overview.state,
        since=overview.since,
        why=overview.why,
        restarts=overview.restarts,
        holder=None if holder is None else HolderDocument.model_validate(holder, from_attributes=True),
        process=None if overview.process is None else _process(overview.process, overview.lag(at)),
        failures=[FailureDocument.model_validate(failure, from_attributes=True) for failure in overview.failures],
        receivers=[ReceiverDocument.model_validate(each, from_attributes=True) for each in overview.receivers],
    )


def _process(process: ProcessStatus, lag: float | None) -> ProcessDocument:
    return ProcessDocument(
        pid=process.pid,
        started=process.started,
        phase=process.phase,
        slow=process.slow,
        newest_batch=process.newest_batch,
        watermark=process.watermark,
        watermark_lag_seconds=lag,
        watermarks=process.watermarks,
        rejected_rows=process.rejected,
        late_pairs=process.late,
        input_rows_per_second=process.input_rate,
        processing_rows_per_second=process.processing_rate,
        latency_seconds=_latency(process.latency),
        memory_bytes=process.memory_bytes,
        catch_up_seconds=process.catch_up_seconds,
        backlog=[BacklogDocument.model_validate(each, from_attributes=True) for each in process.backlog],
        queries={name: _query(status) for name, status in process.queries.items()},
    )


def _latency(latency: tuple[float, float, float] | None) -> LatencyDocument | None:
    return None if latency is None else LatencyDocument(p50=latency[0], p95=latency[1], p99=latency[2])


def _query(status: QueryStatus) -> QueryDocument:
    return QueryDocument.model_validate(status, from_attributes=True)
