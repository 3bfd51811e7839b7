"""Tables read from the list of their files hold what Spark's own Delta reader says they hold."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from streaming.lake.lake import Lake
from streaming.tables import TaskFile, TaskFiles, data_files, delta

FIRST, SECOND = date(2026, 1, 1), date(2026, 1, 2)


def days(spark: SparkSession, *rows: tuple[int, date | None]) -> DataFrame:
    """Rows with a struct, an instant and a day."""
    frame = spark.createDataFrame(list(rows), "n int, _day date")
    return frame.select("n", F.struct("n", F.lit("x").alias("s")).alias("_origin"), F.timestamp_micros("n"), "_day")


def by_spark(spark: SparkSession, uri: str, version: int | None = None) -> DataFrame:
    """The same table as Delta's reader gives it."""
    reader = spark.read.format("delta")
    return (reader if version is None else reader.option("versionAsOf", version)).load(uri)


def sorted_rows(frame: DataFrame) -> list[Row]:
    """Its rows in an order of their own."""
    return sorted(frame.collect(), key=str)


def looks_into_paths(frame: DataFrame) -> bool:
    """Whether Spark computes something of the path of each row."""
    return "regexp_extract" in frame._jdf.queryExecution().executedPlan().toString()


@pytest.fixture
def table(spark: SparkSession, lake: Lake) -> str:
    """A table with a day replaced, rows without a day, a column added, and then compacted: one version each."""
    uri = lake.path("t")
    rows = days(spark, (1, FIRST), (2, SECOND), (3, None))
    delta.create(uri, rows.schema, append_only=False, description="days")
    delta.append(rows, uri)
    delta.replace_days(days(spark, (10, FIRST)), uri, [FIRST], says={})
    delta.append(days(spark, (4, SECOND), (5, SECOND)).withColumn("new", F.lit(1)), uri)
    opened = delta.open_table(uri)
    assert opened is not None
    opened.optimize.compact()
    return uri


@pytest.mark.long
def test_the_rows_are_those_of_sparks_own_reader(spark: SparkSession, table: str) -> None:
    newest = delta.version_of(table)
    assert newest is not None and newest >= 5
    for version in (None, *range(newest + 1)):
        listed, truth = delta.read(spark, table, version), by_spark(spark, table, version)
        assert listed.schema == truth.schema
        assert sorted_rows(listed) == sorted_rows(truth), version
    assert sorted_rows(delta.read(spark, table).where(F.col("_day") == F.lit(FIRST)).select("n")) == [Row(n=10)]


def test_no_path_is_looked_into_for_a_day_that_nobody_asks_for(spark: SparkSession, lake: Lake) -> None:
    uri = lake.path("t")
    rows = days(spark, (1, FIRST), (2, SECOND))
    delta.create(uri, rows.schema, append_only=False, description="days")
    delta.append(rows, uri)
    dated = delta.read(spark, uri).where(F.col("_day").isNotNull())
    assert not looks_into_paths(dated.select("n"))
    assert looks_into_paths(dated)
    assert sorted_rows(dated.select("n", "_day")) == [Row(n=1, _day=FIRST), Row(n=2, _day=SECOND)]

    delta.append(days(spark, (3, None)), uri)
    assert sorted_rows(delta.read(spark, uri).where(F.col("_day").isNull()).select("n")) == [Row(n=3)]


def test_a_frame_holds_the_version_that_was_read_whatever_is_written_afterwards(
    spark: SparkSession, table: str
) -> None:
    frame = delta.read(spark, table)
    before = sorted_rows(frame)
    delta.append(days(spark, (6, FIRST)), table)
    assert sorted_rows(frame) == before
    assert len(sorted_rows(delta.read(spark, table))) == len(before) + 1


def test_many_small_files_of_a_disk_are_read_by_a_task_a_core(spark: SparkSession, lake: Lake) -> None:
    cores = spark.sparkContext.defaultParallelism
    columns = pa.schema([("n", pa.int64())])
    uri = lake.path("small")
    table = delta.opened_or_created(uri, columns, description="a file a row")
    files: list[TaskFile] = []
    for number in range(50 * cores):
        writing = TaskFiles(uri, columns)
        writing.write(pa.RecordBatch.from_pydict({"n": [number]}, schema=columns))
        files += writing.close()
    delta.commit_files(uri, files, says={}, numbers={}, fence=delta.unfenced, table=table)
    frame = delta.read(spark, uri)
    assert frame.rdd.getNumPartitions() == cores
    assert frame.agg(F.count("n"), F.countDistinct("n")).first() == (50 * cores, 50 * cores)


@pytest.mark.long
def test_a_table_of_many_files_is_left_to_spark(
    spark: SparkSession, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_files, "MOST_FILES", 2)
    opened = delta.open_table(table)
    assert opened is not None and data_files.read_listed(spark, opened, table) is None
    assert sorted_rows(delta.read(spark, table)) == sorted_rows(by_spark(spark, table))
