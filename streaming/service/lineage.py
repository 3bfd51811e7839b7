"""Runs of a pipeline as events of OpenLineage: what was read and written, of which version, in how many rows.

Where events go is told by OpenLineage's own variables and files, which its client reads: `OPENLINEAGE_URL`, an
`openlineage.yml`, or `OPENLINEAGE__TRANSPORT__...`. Where there are none of these, nothing is sent, and the client is
not even loaded.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from queue import Full, Queue
from threading import Event, Lock, Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

from streaming.base import RELEASE, MissingExtra, interval, needs, utc_now
from streaming.declare import Pipeline
from streaming.lake import Lake, Settings
from streaming.service.lineage_jobs import LineageJob, LineageTable, jobs_of
from streaming.service.status import PROCESS, ControlFolder, ProcessStatus
from streaming.tables import delta, sql_type

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from openlineage.client.event_v2 import RunEvent

PRODUCER = f"urn:tidemark:{RELEASE}"
"""The program that has made an event, as a URI."""

NAMESPACE = "OPENLINEAGE_NAMESPACE"
"""The variable with the namespace of all jobs, as OpenLineage's other integrations read it; `tidemark` where unset."""

Ended = Literal["COMPLETE", "FAIL", "ABORT"]
Processing = Literal["STREAMING", "BATCH"]

_MOST_WAITING = 1_000
_SENT_WITHIN = 3.0
_EACH_SENT_WITHIN = 0.5
_ALL_SENT_WITHIN = 15.0
_WARNED_EVERY = 60.0
_REJECTED = "_rejected"
_USER_INFO = re.compile(r"(?<=//)[^/\s]*@")

_OpenTable = Callable[[str], "DeltaTable | None"]

_log = logging.getLogger("tidemark")


@dataclass(frozen=True)
class JobCounts:
    """The outcome of a job so far: rows written since its run began, and those of them that were rejected.

    `error`: why it does not go on while the others do.
    """

    rows: int = 0
    rejected: int = 0
    error: str | None = None


def is_configured() -> bool:
    """True where OpenLineage's client finds a transport: a variable for it, or a file where the client looks."""
    if os.environ.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return False
    # In the order in which the client looks; a file that only sets other things makes it print to the console.
    files = (os.environ.get("OPENLINEAGE_CONFIG"), "openlineage.yml", "~/.openlineage/openlineage.yml")
    return (
        bool(os.environ.get("OPENLINEAGE_URL"))
        or any(name.startswith("OPENLINEAGE__TRANSPORT") for name in os.environ)
        or any(file and Path(file).expanduser().is_file() for file in files)
    )


class LineageSender:
    """Sends events one after another in a thread of its own, so that nothing waits for whoever takes them.

    `lost` counts those that were not sent: refused, or one too many for the queue.
    """

    def __init__(self, most: int = _MOST_WAITING) -> None:
        self._waiting: Queue[Callable[[], RunEvent] | None] = Queue(most)
        self._over = Event()
        self._warned_at = -_WARNED_EVERY
        self._losing = Lock()
        self.lost = 0
        self._thread = Thread(target=self._go_on, name="lineage", daemon=True)
        self._thread.start()

    def send(self, make: Callable[[], RunEvent]) -> None:
        """Have an event made and sent later, in the thread; this never waits."""
        try:
            self._waiting.put_nowait(make)
        except Full:
            self._lose("too many events wait to be sent")

    def close(self) -> None:
        """Send what waits, for some seconds, more the more there is, and nothing any more."""
        within = min(_SENT_WITHIN + _EACH_SENT_WITHIN * self._waiting.qsize(), _ALL_SENT_WITHIN)
        ends = True
        try:
            self._waiting.put_nowait(None)
        except Full:
            ends = False
            self._over.set()
        self._thread.join(within)
        self._over.set()
        # The one that is being sent is not in the queue, but the end is, where there was room for it.
        self.lost += self._waiting.qsize() + (self._thread.is_alive() and not ends)
        if self.lost:
            _log.warning("lineage: %s events were not sent", f"{self.lost:,}")

    def _go_on(self) -> None:
        client: Any = None
        while not self._over.is_set():
            make = self._waiting.get()
            if make is None:
                break
            try:
                if client is None:
                    client = _client()
                client.emit(make())
            # Whatever the transport or the storage of a table raises: lineage must not end what it tells of.
            except Exception as error:
                self._lose(_told(error))
        if client is not None:
            with suppress(Exception):
                client.close(_SENT_WITHIN)

    def _lose(self, why: str) -> None:
        with self._losing:
            self.lost += 1
            warned = monotonic() - self._warned_at < _WARNED_EVERY
            self._warned_at = self._warned_at if warned else monotonic()
        if not warned:
            _log.warning("lineage is not sent, which stops nothing, and events are counted that are lost: %s", why)


class LineageRun:
    """One run of some jobs of a pipeline: an event of each, and of the run of the pipeline that they belong to.

    All events of a run have one id for each job. They are made in the sender's thread, as versions of tables have to
    be looked up, of each table once for all jobs; their time is when they were asked for.
    """

    def __init__(
        self,
        sender: LineageSender,
        pipeline: Pipeline,
        jobs: Sequence[LineageJob],
        processing: Processing,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._sender = sender
        self._pipeline = pipeline
        self._jobs = tuple(jobs)
        self._processing = processing
        self._now = now
        self._id = str(uuid4())
        self._ids = {job.name: str(uuid4()) for job in jobs}

    def start(self) -> None:
        """Tell that all jobs begin."""
        self._tell("START", {})

    def go_on(self, counts: Mapping[str, JobCounts]) -> None:
        """Tell that all jobs run, with what each has brought by now, by its query."""
        self._tell("RUNNING", counts)

    def end(
        self, how: Ended, counts: Mapping[str, JobCounts], error: str | None = None, failed: str | None = None
    ) -> None:
        """Tell that all jobs have ended.

        Of a run that failed with an `error` the query that `failed` is named; the others were aborted with it. In one
        that was completed those have failed that did not go on, each for its own reason.
        """
        at, opened = self._now(), _open_once()
        # The storage of a table may hold up the events of jobs, and this one needs none.
        self._sender.send(partial(self._event, how, at, None, JobCounts(), error, opened))
        for job in self._jobs:
            of_job = counts.get(job.query, JobCounts())
            ended, why = how, of_job.error
            if how == "FAIL":
                ended, why = ("FAIL", error) if job.query == failed else ("ABORT", why)
            elif how == "COMPLETE" and why is not None:
                ended = "FAIL"
            self._sender.send(partial(self._event, ended, at, job, of_job, why, opened))

    def _tell(self, kind: str, counts: Mapping[str, JobCounts]) -> None:
        at, opened = self._now(), _open_once()
        self._sender.send(partial(self._event, kind, at, None, None, None, opened))
        for job in self._jobs:
            self._sender.send(partial(self._event, kind, at, job, counts.get(job.query), None, opened))

    def _event(
        self,
        kind: str,
        at: datetime,
        job: LineageJob | None,
        counts: JobCounts | None,
        error: str | None,
        opened: _OpenTable,
    ) -> RunEvent:
        from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
        from openlineage.client.facet_v2 import (
            documentation_job,
            error_message_run,
            job_type_job,
            ownership_job,
            parent_run,
            processing_engine_run,
        )
        from pyspark import __version__ as spark

        by: dict[str, Any] = {"producer": PRODUCER}
        namespace, pipeline = os.environ.get(NAMESPACE) or "tidemark", self._pipeline
        engine = processing_engine_run.ProcessingEngineRunFacet(spark, "spark", RELEASE, **by)
        about: dict[str, Any] = {"processing_engine": engine}
        if job is not None:
            of = parent_run.Job(namespace, pipeline.name)
            about["parent"] = parent_run.ParentRunFacet(parent_run.Run(self._id), of, **by)
        if error is not None:
            about["errorMessage"] = error_message_run.ErrorMessageRunFacet(error, "python", **by)
        kinds = job_type_job.JobTypeJobFacet(self._processing, "TIDEMARK", "DAG" if job is None else "QUERY", **by)
        facets: dict[str, Any] = {"jobType": kinds}
        if description := "" if job is None else job.description:
            facets["documentation"] = documentation_job.DocumentationJobFacet(description, **by)
        if pipeline.owner:
            facets["ownership"] = ownership_job.OwnershipJobFacet([ownership_job.Owner(pipeline.owner)], **by)
        return RunEvent(
            eventTime=at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            producer=PRODUCER,
            eventType=RunState(kind),
            run=Run(self._id if job is None else self._ids[job.name], about),
            job=Job(namespace, pipeline.name if job is None else job.name, facets),
            inputs=[
                InputDataset(table.dataset.namespace, table.dataset.name, facets=_facets(table, opened))
                for table in (job.reads if job else ())
            ],
            outputs=[
                OutputDataset(
                    table.dataset.namespace,
                    table.dataset.name,
                    facets={
                        **_facets(table, opened),
                        **(_quality(job, counts) if job and counts and number == 0 else {}),
                    },
                    outputFacets=_statistics(counts) if counts and number == 0 else {},
                )
                for number, table in enumerate(job.writes if job else ())
            ],
        )


class StreamLineage:
    """Lineage of a running stream: told by its supervisor, who is there whatever becomes of the process.

    A run is one life of the process. Nothing is told where OpenLineage is not configured, or not installed.
    """

    def __init__(self, lake: Lake, pipeline: Pipeline, now: Callable[[], datetime] = utc_now) -> None:
        self._lake = lake
        self._pipeline = pipeline
        self._now = now
        self._control = ControlFolder(lake, pipeline)
        self._every = interval(Settings().lineage_every)
        self._sender: LineageSender | None = None
        self._run: LineageRun | None = None
        self._process: int | None = None
        self._told_at = now()

    def begin(self, process: int) -> None:
        """The process of this number was started."""
        self._sender = self._sender or _sender()
        if self._sender is not None:
            self._process, self._told_at = process, self._now()
            jobs = partial(jobs_of, self._lake, self._pipeline)
            self._run = _begun(self._sender, self._pipeline, jobs, "STREAMING", self._now)

    def go_on(self) -> None:
        """Tell that it runs, if that was told long enough ago; may be called as often as one likes."""
        if self._run is not None and self._now() - self._told_at >= self._every:
            self._told_at = self._now()
            self._run.go_on(self._counts())

    def end(self, how: Ended, error: str | None = None, failed: str | None = None) -> None:
        """The process has ended, in the query that `failed` where one did; of one that has ended before, nothing."""
        if self._run is not None:
            self._run.end(how, self._counts(), error, failed)
            self._run = None

    def close(self) -> None:
        """Send what waits; nothing is told any more."""
        if self._sender is not None:
            self._sender.close()

    def _counts(self) -> dict[str, JobCounts]:
        status = self._control.read(PROCESS, ProcessStatus)
        # The file may be one of a process before this one, which has written none yet.
        if status is None or status.pid != self._process:
            return {}
        return {name: JobCounts(query.rows, query.rejected, query.paused) for name, query in status.queries.items()}


@contextmanager
def lineage_of(
    pipeline: Pipeline, jobs: Callable[[], Iterable[LineageJob]], now: Callable[[], datetime] = utc_now
) -> Iterator[dict[str, JobCounts]]:
    """Tell of the `jobs` that the body does once: that they begin, and how they have ended.

    They are asked for only where somebody is told. The body writes what each query has brought into the mapping that it
    is given. What it raises is told, and raised.
    """
    counts: dict[str, JobCounts] = {}
    sender = _sender()
    run = None if sender is None else _begun(sender, pipeline, jobs, "BATCH", now)
    if sender is None or run is None:
        yield counts
        return
    try:
        yield counts
    except Exception as error:
        run.end("FAIL", counts, str(error) or type(error).__name__)
        raise
    except BaseException:
        run.end("ABORT", counts)
        raise
    else:
        run.end("COMPLETE", counts)
    finally:
        sender.close()


def _begun(
    sender: LineageSender,
    pipeline: Pipeline,
    jobs: Callable[[], Iterable[LineageJob]],
    processing: Processing,
    now: Callable[[], datetime],
) -> LineageRun | None:
    """A run that has begun; None where its jobs cannot be told, which ends nothing else."""
    try:
        run = LineageRun(sender, pipeline, tuple(jobs()), processing, now)
    # A source or target of somebody's own may raise anything when it is asked where it is.
    except Exception as error:
        _log.warning("no lineage of %s is sent: %s", pipeline.name, _told(error))
        return None
    run.start()
    return run


def _told(error: Exception) -> str:
    """An error as a warning tells it: without user and password of the URLs in it, such as that of a transport."""
    return f"{type(error).__name__}: {_USER_INFO.sub('', str(error))}"


def _sender() -> LineageSender | None:
    """A sender; None where OpenLineage is not configured, or its client is not installed, which is said."""
    if not is_configured():
        return None
    try:
        needs("openlineage.client", "lineage, for which OpenLineage's variables or files are set,")
    except MissingExtra as missing:
        # The variables may be meant for other programs of this machine.
        _log.warning("no lineage is sent: %s", missing)
        return None
    return LineageSender()


def _client() -> Any:
    from openlineage.client import OpenLineageClient

    return OpenLineageClient()


def _open_once() -> _OpenTable:
    """A function that opens tables, each once however often it is asked for it."""
    return cache(delta.open_table)


def _facets(table: LineageTable, opened: _OpenTable) -> dict[str, Any]:
    """The facets of a dataset wherever it is read or written: columns, lineage, and of a Delta table its version."""
    from openlineage.client.facet_v2 import (
        column_lineage_dataset,
        dataset_version_dataset,
        documentation_dataset,
        schema_dataset,
        storage_dataset,
    )

    by: dict[str, Any] = {"producer": PRODUCER}
    facets: dict[str, Any] = {}
    stored = opened(table.table) if table.table else None
    declared = {each.name: each for each in table.columns}
    types = {name: each.type for name, each in declared.items()} if stored is None else _types_in(stored)
    if types:
        columns = [
            schema_dataset.SchemaDatasetFacetFields(
                name=name, type=type_, description=(declared[name].meaning or None) if name in declared else None
            )
            for name, type_ in types.items()
        ]
        facets["schema"] = schema_dataset.SchemaDatasetFacet(fields=columns, **by)
    fields = {
        name: column_lineage_dataset.Fields(
            [column_lineage_dataset.InputField(of.namespace, of.name, column) for of, column in origins]
        )
        for name, origins in table.origins.items()
        if origins
    }
    if fields:
        facets["columnLineage"] = column_lineage_dataset.ColumnLineageDatasetFacet(fields, **by)
    if table.description:
        facets["documentation"] = documentation_dataset.DocumentationDatasetFacet(table.description, **by)
    if table.table:
        facets["storage"] = storage_dataset.StorageDatasetFacet("delta", "parquet", **by)
    if stored is not None:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(str(stored.version()), **by)
    return facets


def _types_in(stored: DeltaTable) -> dict[str, str | None]:
    """The columns of a table as it is, with the names that SQL has for their types."""
    fields: list[dict[str, Any]] = json.loads(stored.schema().to_json())["fields"]
    return {each["name"]: sql_type(each["type"]) for each in fields}


def _statistics(counts: JobCounts) -> dict[str, Any]:
    from openlineage.client.facet_v2 import output_statistics_output_dataset as statistics

    return {"outputStatistics": statistics.OutputStatisticsOutputDatasetFacet(rowCount=counts.rows, producer=PRODUCER)}


def _quality(job: LineageJob, counts: JobCounts) -> dict[str, Any]:
    """The rows that came to a log in this run, and in how many of them the column of rejections is not null."""
    from openlineage.client.facet_v2 import data_quality_metrics_dataset as quality

    if not job.is_ingest:
        return {}
    rejections = quality.ColumnMetrics(nullCount=counts.rows - counts.rejected, count=float(counts.rejected))
    metrics = {_REJECTED: rejections}
    return {"dataQualityMetrics": quality.DataQualityMetricsDatasetFacet(metrics, counts.rows, producer=PRODUCER)}
