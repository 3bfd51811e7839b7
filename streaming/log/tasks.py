"""The work of Spark's Python workers in an ingest: read payloads, judge them, and write what is certain to the log."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from streaming.base import DAY, ORIGIN, LogError, SourceError
from streaming.formats import TYPED, Decoder
from streaming.log.batches import bounded_unknown, count_names, count_reasons
from streaming.log.judgement import Judgement, Stamps, Verdict
from streaming.sources import PayloadPart, Taken
from streaming.spark import raised_in_workers
from streaming.tables import TaskFile, TaskFiles

_REPORT = "report"
_LITTLE = 2 * 2**20
"""Bytes of payloads that are read in the driver, as a job of tasks takes longer to begin than they take."""
_Name = TypeVar("_Name", str, int)


@dataclass(frozen=True)
class TaskReport:
    """The report of a task, or of several: the `files` of certain rows, and those of the payloads in doubt.

    All else counts the certain rows: their number for each source partition, and the greatest event time of those that
    move the clock, in microseconds since the epoch, null where none does. `source_times` has the number of all rows,
    also of those in doubt, that the source had at each instant, in microseconds since the epoch. `warned` has the
    number of valid rows that break each rule which warns or stops, and `reasons` is as that of a `Batch`. `unwritten`:
    payloads in doubt that are in no file, as no file may have them.
    """

    files: tuple[TaskFile, ...] = ()
    doubtful: tuple[TaskFile, ...] = ()
    rows: Mapping[str, int] = field(default_factory=dict)
    rejected: int = 0
    greatest: Mapping[str, int | None] = field(default_factory=dict)
    source_times: Mapping[int, int] = field(default_factory=dict)
    unknown: Mapping[str, int] = field(default_factory=dict)
    late: Mapping[str, int] = field(default_factory=dict)
    unassigned: Mapping[str, int] = field(default_factory=dict)
    warned: Mapping[str, int] = field(default_factory=dict)
    reasons: Mapping[str, int] = field(default_factory=dict)
    unwritten: int = 0

    def __add__(self, other: TaskReport) -> TaskReport:
        return TaskReport(
            self.files + other.files,
            self.doubtful + other.doubtful,
            _sums(self.rows, other.rows),
            self.rejected + other.rejected,
            _greatest_of(self.greatest, other.greatest),
            _sums(self.source_times, other.source_times),
            bounded_unknown(_sums(self.unknown, other.unknown)),
            _sums(self.late, other.late),
            _sums(self.unassigned, other.unassigned),
            _sums(self.warned, other.warned),
            _sums(self.reasons, other.reasons),
            self.unwritten + other.unwritten,
        )

    def to_json(self) -> str:
        """The report as text."""
        return json.dumps({**asdict(self), "source_times": [*self.source_times.items()]})

    @classmethod
    def from_json(cls, text: str) -> TaskReport:
        """The inverse of `to_json`."""
        told = json.loads(text)
        files = {name: tuple(TaskFile(**file) for file in told[name]) for name in ("files", "doubtful")}
        return cls(**{**told, **files, "source_times": dict(map(tuple, told["source_times"]))})


def _sums(*counts: Mapping[_Name, int]) -> dict[_Name, int]:
    """The sums of several counts."""
    together = Counter[_Name]()
    for each in counts:
        together.update(each)
    return dict(together)


def _greatest_of(*times: Mapping[str, int | None]) -> dict[str, int | None]:
    """The greatest time of each name; null where none has one."""
    together: dict[str, int | None] = {}
    for name, time in (entry for each in times for entry in each.items()):
        before = together.get(name)
        together[name] = time if before is None else before if time is None else max(before, time)
    return together


def percentiles(counts: Mapping[int, int], shares: Sequence[float]) -> list[float] | None:
    """The values below which such shares of all lie, between two of them as far as Spark's `percentile` is.

    None where there is no value.
    """
    values = sorted(counts)
    if not values:
        return None
    through = np.cumsum([counts[value] for value in values])
    last = int(through[-1]) - 1
    found = []
    for share in shares:
        place = last * share
        lower, higher = int(np.floor(place)), int(np.ceil(place))
        low, high = (values[int(np.searchsorted(through, at + 1))] for at in (lower, higher))
        found.append(float(low) if low == high else (higher - place) * low + (place - lower) * high)
    return found


@dataclass(frozen=True)
class WriteCertain:
    """Write the certain rows of payloads as files of the log at `uri`, and the payloads in doubt beside them.

    `statistics` and `diverse` are as those of `TaskFiles`. `by_day`: the log is partitioned by the day, so that each
    day has files of its own.
    """

    uri: str
    decoder: Decoder
    judgement: Judgement
    stamps: Stamps
    statistics: tuple[str, ...]
    diverse: tuple[str, ...]
    by_day: bool

    def of_frame(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The report of a task that is given the payloads of a frame, as a row of one text."""
        yield pa.RecordBatch.from_pydict({_REPORT: [self._written(batches).to_json()]})

    def of_parts(self, groups: Iterable[Sequence[PayloadPart]]) -> Iterator[str]:
        """The report of a task that reads the payloads itself, as text."""
        batches = (batch for group in groups for part in group for batch in part.batches())
        yield self._written(batches).to_json()

    def _written(self, batches: Iterable[pa.RecordBatch]) -> TaskReport:
        if self.judgement.masking is None:
            return self._judged(batches)
        try:
            return self._judged(batches)
        except (SourceError, OSError):
            raise
        except Exception as error:
            raise LogError(
                f"rows could not be judged ({type(error).__name__}); more is not told, as it may quote masked values"
            ) from None

    def _judged(self, batches: Iterable[pa.RecordBatch]) -> TaskReport:
        client = self.decoder.client()
        writing = _Writing(self)
        for batch in batches:
            payloads = batch.column("_raw").cast(pa.binary())
            decoded = self.decoder.of_batch(batch, payloads, client)
            columns = [batch.column("_raw"), batch.column(ORIGIN), *decoded]
            parsed = pa.RecordBatch.from_arrays(columns, names=["_raw", ORIGIN, *self.decoder.types.names])
            writing.add(batch, self.judgement.of(parsed, self.stamps))
        return writing.report()


class _Writing:
    """The files of a task, and what it has counted by now."""

    def __init__(self, of: WriteCertain) -> None:
        self._of = of
        columns = of.judgement.types
        if of.by_day:
            columns = pa.schema([field for field in columns if field.name != DAY])
        self._files = TaskFiles(of.uri, columns, of.statistics, of.diverse, dated=of.by_day)
        self._doubtful: TaskFiles | None = None
        self._counted = TaskReport()

    def add(self, batch: pa.RecordBatch, verdict: Verdict) -> None:
        """Write the rows that are certain, and the payloads of a batch that are not."""
        if self._of.by_day:
            self._write_by_day(verdict.rows)
        else:
            self._files.write(verdict.rows)
        if verdict.doubtful.any() and self._of.judgement.masking is not None:
            # A file of payloads would show what is masked.
            self._counted += TaskReport(unwritten=int(verdict.doubtful.sum()))
        elif verdict.doubtful.any():
            columns = {"_raw": batch.column("_raw").cast(pa.binary()), ORIGIN: batch.column(ORIGIN)}
            if TYPED in batch.schema.names:
                columns[TYPED] = batch.column(TYPED)
            payloads = pa.RecordBatch.from_pydict(columns).filter(pa.array(verdict.doubtful))
            if self._doubtful is None:
                self._doubtful = TaskFiles(self._of.uri, payloads.schema)
            self._doubtful.write(payloads)
        self._counted += self._count(verdict)

    def _write_by_day(self, rows: pa.RecordBatch) -> None:
        days = rows.column(DAY)
        plain = rows.drop_columns([DAY])
        for day in pc.unique(days).to_pylist():
            # Nearly always all rows are of one day.
            of_day = days.is_null() if day is None else pc.fill_null(pc.equal(days, day), False)
            self._files.write(plain.filter(of_day) if pc.any(pc.invert(of_day)).as_py() else plain, day)

    def report(self) -> TaskReport:
        """The report, once all files are ended."""
        doubtful = () if self._doubtful is None else tuple(self._doubtful.close())
        return self._counted + TaskReport(files=tuple(self._files.close()), doubtful=doubtful)

    def _count(self, verdict: Verdict) -> TaskReport:
        rows, number = verdict.rows, verdict.rows.num_rows
        is_valid = rows.column(DAY).is_valid()
        partition = pa.repeat("", number) if verdict.partition is None else verdict.partition
        times = pc.if_else(pa.array(verdict.moves), rows.column(self._of.judgement.time.name).view(pa.int64()), None)
        by_partition = pa.table({"partition": partition, "valid": is_valid, "time": times}).group_by("partition")
        grouped = by_partition.aggregate([("valid", "count"), ("valid", "sum"), ("time", "max")]).to_pylist()
        source_times = pc.value_counts(verdict.source_time.drop_null())
        names = verdict.unknown.drop_null()
        return TaskReport(
            rows={each["partition"]: each["valid_count"] for each in grouped},
            rejected=number - (pc.sum(is_valid).as_py() or 0),
            greatest={each["partition"]: each["time_max"] for each in grouped if each["valid_sum"]},
            source_times={each["values"]: each["counts"] for each in source_times.to_pylist()},
            unknown=count_names(names.to_pylist()),
            late=verdict.late,
            unassigned=verdict.unassigned,
            warned=verdict.warned,
            reasons=count_reasons(rows.column("_rejected")),
        )


def write_certain(spark: SparkSession, taken: Taken, write: WriteCertain) -> TaskReport:
    """Let the tasks of one job write the rows of a batch, or do it here where these are few; returns the report.

    Raises:
        SourceError: a part of the batch is gone, or cannot be read.
    """
    lengths = [part.length for group in taken.parts for part in group]
    if len(taken.parts) == 1 and None not in lengths and sum(filter(None, lengths)) <= _LITTLE:
        texts = list(write.of_parts(taken.parts))
    else:
        try:
            texts = _reports(spark, taken, write)
        except (PythonException, Py4JJavaError) as error:
            told = raised_in_workers(str(error), SourceError)
            if told is None:
                raise
            raise SourceError(told) from error
    return sum(map(TaskReport.from_json, texts), TaskReport())


def _reports(spark: SparkSession, taken: Taken, write: WriteCertain) -> list[str]:
    if not taken.parts:
        return [row[_REPORT] for row in taken.rows().mapInArrow(write.of_frame, f"{_REPORT} string").collect()]
    groups = spark.sparkContext.parallelize(taken.parts, len(taken.parts))
    return groups.mapPartitions(write.of_parts).collect()
