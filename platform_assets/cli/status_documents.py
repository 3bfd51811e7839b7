"""The document that `tidemark status --json` prints; see `documents` on the units and the stability of its fields."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime

from pydantic import BaseModel

from platform_assets.cli.documents import BrokenModuleDocument, Document
from platform_assets.cli.retention_documents import RetentionDocument
from platform_assets.texts.positions import LogPosition
from streaming.base import BrokenModule
from streaming.declare import Pipeline
from streaming.operations import UndeclaredTable
from streaming.operators import FilterCounts, UpstreamLag
from streaming.service import Overview, ProcessStatus, QueryStatus


class HolderDocument(BaseModel):
    """The process that holds the pipeline, and `what` it does with it, such as `stream` or `drain`."""

    process: int
    host: str
    what: str


class FailureDocument(BaseModel):
    """The end of a stream process that nobody asked for: when, in which batch, with which error.

    `batch` names the query and its batch, `origins` the files or offsets that the batch read. See
    `streaming.declare.Failure`.
    """

    at: datetime
    batch: str
    error: str
    origins: str


class BacklogDocument(BaseModel):
    """The backlog of the sources that count in one `unit`: `items` files or rows of `size` bytes wait for a batch.

    `warning` is a sentence on rows that no batch will ever take, and what to do about it; empty for none.
    """

    items: int
    unit: str
    size: int | None
    warning: str


class QueryDocument(BaseModel):
    """The query of a log, an operator or a delivery: the batch that runs, the last one, and totals since the start.

    `rejected`: those of `rows` that a log got as rejected ones. `behind`: the batches of its logs that an operator has
    not followed yet, `behind_since` when these became more than one; `watermark`: that of its logs at the batch up to
    which it has. `paused`: why it does not go on until somebody acts, while the others do. `waiting`: why a delivery
    waits for its target, `waiting_since` when it began to. `failures`: rows since the start that something outside did
    not answer, `failed_at` when the last one. `warned`: the valid rows that broke a rule which only warns, by rule;
    `reasons`: those against rejected rows, by rule or another label.
    """

    running_batch: int | None
    running_since: datetime | None
    last_batch: int | None
    last_ended: datetime | None
    last_seconds: float | None
    batches: int
    rows: int
    rejected: int
    state_rows: int | None
    state_bytes: int | None
    paused: str | None
    behind: int | None
    behind_since: datetime | None
    watermark: datetime | None
    waiting: str | None
    waiting_since: datetime | None
    failures: int
    failed_at: datetime | None
    warned: dict[str, int]
    reasons: dict[str, int]


class LatencyDocument(BaseModel):
    """Percentiles of the seconds from the source to the commit of the log, of the last two minutes."""

    p50: float
    p95: float
    p99: float


class LateValueDocument(BaseModel):
    """A value that is late by `fresh_within`, such as `tenant=acme`, and its newest event time."""

    value: str
    newest: datetime


class ValuesDocument(BaseModel):
    """The values of a stream or view that `fresh_within` asks for one by one, counted at `at`.

    `known` have come and are not retired, `late` of them are older than they may be, and `named` are furthest behind.
    """

    at: datetime
    known: int
    late: int
    named: list[LateValueDocument]


class UnusualHourDocument(BaseModel):
    """An hour that began `at`, by `aggregate` of a stream or view: its `value`, and the `median` of the weeks before.

    Usual would have been a value from `low` to `high`. `value` is null where it is NaN or infinite.
    """

    of: str
    aggregate: str
    at: datetime
    value: float | None
    median: float
    low: float
    high: float


class ProcessDocument(BaseModel):
    """The stream process; counts are since its start, rates are of the last two minutes.

    `slow`: batches take longer than their trigger interval. `watermark` is the least of `watermarks`, which are by
    stream. `catch_up_seconds`: the time until nothing waits in the sources at the present rate; null where the backlog
    does not shrink. `values` are those that `fresh_within` asks for one by one, by table, such as `rides/log`,
    and `unusual` the last hours of streams and views that are unusual by the rules of the limits.
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
    values: dict[str, ValuesDocument]
    unusual: list[UnusualHourDocument]


class ReceiverDocument(BaseModel):
    """A receiver: its `state`, `since` when and, while it waits for its source, `why`; counts are since its start.

    `rows` came, `landed` of them are in `files` by now, and `refused` ones cannot be taken. `reconnects` counts the
    connections that were lost; `away_since` is null while the source is there. `behind`: bytes that the source keeps
    until the receiver has landed them, null where it does not tell. `losses`: how often the source had lost rows that
    it was to keep; `lost` tells what, the last time, and `lost_at` when that was seen, also by a process before.
    """

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
    behind: int | None
    landed_at: datetime | None
    away_since: datetime | None
    losses: int
    lost: str
    lost_at: datetime | None


class PipelineDocument(BaseModel):
    """A pipeline: its `state`, `since` when and, where somebody must act, `why`.

    `holder` and `process` are null where nothing runs it; `receivers` are those that were ever started here.
    """

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
    """A table in the lake whose view, other operator or delivery, named in `view`, is not declared any more."""

    view: str
    uri: str


class FilterDocument(BaseModel):
    """The counts of a business filter since its `table` was built: rows that came, were kept, and were removed."""

    pipeline: str
    table: str
    rows_in: int
    kept: int
    removed: int


class LogDocument(BaseModel):
    """The newest batch of a stream's log, the watermark after it, and the backlog of its source.

    `waiting` is the backlog in words; it is empty where the pipeline runs, as the `backlog` of its process tells it.
    """

    pipeline: str
    stream: str
    newest_batch: int
    watermark: datetime | None
    waiting: str


class UpstreamDocument(BaseModel):
    """The lag of an `operator` behind the corrections of an `upstream` that it follows, directly or however far up.

    `days_due` are days of the upstream that are due to be corrected, by the newest plan; `is_counted` is false where
    late rows came after it, so that there may be more. `revisions` of `<upstream>_changes` are not followed yet.
    """

    pipeline: str
    operator: str
    upstream: str
    days_due: list[date]
    is_counted: bool
    revisions: int


class StatusDocument(Document):
    """`tidemark status --json`.

    `left_tables` are tables that nothing declared has; `retention` has the logs that drop old days.
    """

    lake: str
    at: datetime
    pipelines: list[PipelineDocument]
    left_tables: list[UndeclaredTableDocument]
    broken_modules: list[BrokenModuleDocument]
    filters: list[FilterDocument]
    retention: list[RetentionDocument]
    logs: list[LogDocument]
    upstream: list[UpstreamDocument]

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
        lags: Iterable[tuple[Pipeline, UpstreamLag]],
    ) -> StatusDocument:
        """The document of the pipelines as they are at the instant `at`.

        `filters` are the pipeline, the name of the table and the counts of each business filter; `left` are the tables
        that nothing declared has, and `broken` the modules that cannot be used. `lags` are of operators that follow
        what is current of others, each with its pipeline.
        """
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
            upstream=[
                UpstreamDocument(
                    pipeline=pipeline.name,
                    operator=lag.operator,
                    upstream=lag.upstream,
                    days_due=list(lag.due.days),
                    is_counted=lag.due.is_counted,
                    revisions=lag.revisions,
                )
                for pipeline, lag in lags
            ],
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
        unusual=[UnusualHourDocument.model_validate(each, from_attributes=True) for each in process.unusual],
        values={
            name: ValuesDocument.model_validate(each, from_attributes=True) for name, each in process.values.items()
        },
    )


def _latency(latency: tuple[float, float, float] | None) -> LatencyDocument | None:
    if latency is None:
        return None
    p50, p95, p99 = latency
    return LatencyDocument(p50=p50, p95=p95, p99=p99)


def _query(status: QueryStatus) -> QueryDocument:
    return QueryDocument.model_validate(status, from_attributes=True)
