"""What steps read of a log: files by where their rows lie in time, and of a large one only the part that is near."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from streaming import BoundedOutOfOrderness, Files, Json, Lake, Stream
from streaming.log import read as log_reads
from streaming.tables import TaskFiles, data_files, delta
from tests.support.instants import at

readings = Stream(
    name="readings",
    source=Files("landing"),
    format=Json("at timestamp, n bigint"),
    event_time="at",
    clock=BoundedOutOfOrderness("10 seconds"),
)
ROWS, A_PART, SECOND = 2_000, 100, timedelta(seconds=1)
DAY = at(0).date()


@pytest.fixture
def log(spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> log_reads.LogFiles:
    """A log of one file, with a row in each second of a while and one row from long before."""
    monkeypatch.setattr(data_files, "_GROUP_BYTES", 1)
    uri = lake.log(readings)
    rows = spark.createDataFrame([], "at timestamp, n bigint, _batch bigint, _day date")
    delta.create(uri, rows.schema, append_only=True, description="readings")
    times = [at(3_600 + n) for n in range(ROWS - 1)] + [at(5)]
    whole = pa.record_batch({"at": pa.array(times, pa.timestamp("us", "UTC")), "n": range(ROWS), "_batch": [0] * ROWS})
    written = TaskFiles(uri, whole.schema, ("at", "_batch"))
    for start in range(0, ROWS, A_PART):
        written.write(whole.slice(start, A_PART), DAY)
    delta.commit_files(uri, written.close(), says={}, numbers={}, fence=lambda table: None)
    return log_reads.LogFiles(lake, readings)


def rows_read(frame: DataFrame) -> int:
    """Rows that the scan of a frame gave in its last run."""
    scan = frame._jdf.queryExecution().executedPlan().collectLeaves().apply(0)
    return int(scan.metrics().apply("numOutputRows").value())


@pytest.mark.parametrize(("large", "read"), [(0, 2 * A_PART), (log_reads._LARGE, ROWS)])
def test_of_a_large_file_only_the_parts_near_the_ranges_are_read(
    spark: SparkSession, log: log_reads.LogFiles, monkeypatch: pytest.MonkeyPatch, large: int, read: int
) -> None:
    monkeypatch.setattr(log_reads, "_LARGE", large)
    frame = log.within(spark, [(at(5), at(6)), (at(4_000), at(4_001))], 0, SECOND)
    assert frame is not None
    assert {400, 401, ROWS - 1} <= {row.n for row in frame.collect()}
    assert rows_read(frame) == read


def test_a_file_is_not_read_for_what_lies_between_its_rows(spark: SparkSession, log: log_reads.LogFiles) -> None:
    assert log.within(spark, [(at(7), at(3_598))], 0, SECOND) is None
