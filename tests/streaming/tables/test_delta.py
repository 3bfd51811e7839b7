"""The one way into a table: once per transaction, whole days replaced, old versions readable."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base.intervals import utc_now
from streaming.lake.lake import Lake
from streaming.tables import delta
from streaming.tables.bounds import file_statistics
from streaming.tables.history import clean_up, commits_of, numbers_named
from streaming.tables.storage import files_of

FIRST, SECOND = date(2026, 1, 1), date(2026, 1, 2)


def results(spark: SparkSession, *rows: tuple[int, date | None]) -> DataFrame:
    """Rows of a tiny table partitioned by day."""
    return spark.createDataFrame(list(rows), "n int, _day date")


def content(spark: SparkSession, uri: str, version: int | None = None) -> set[tuple[int, date | None]]:
    """The rows of one version."""
    return {tuple(row) for row in delta.read(spark, uri, version).collect()}


def append_numbered(rows: DataFrame, uri: str, numbers: Iterable[int]) -> None:
    """The same rows in a commit for each number, which it tells."""
    for number in numbers:
        delta.append(rows, uri, {"number": number})


def test_replacing_a_day_leaves_the_other_days_and_the_old_version_alone(spark: SparkSession, lake: Lake) -> None:
    uri = lake.path("t")
    rows = results(spark, (1, FIRST), (2, SECOND), (3, None))
    delta.create(uri, rows.schema, append_only=False, description="three rows")
    delta.replace_days(rows, uri, [FIRST, SECOND], says={})
    assert delta.replace_days(results(spark, (10, FIRST)), uri, [FIRST], says={"why": "late"}) == 1
    assert content(spark, uri) == {(10, FIRST), (2, SECOND), (3, None)}
    delta.replace_days(results(spark), uri, [FIRST], says={})
    assert content(spark, uri) == {(2, SECOND), (3, None)}
    assert content(spark, uri, 1) == {(1, FIRST), (2, SECOND), (3, None)}
    assert [commit["userMetadata"] for commit in commits_of(delta.opened(uri))[:2]] == [{}, {"why": "late"}]


@pytest.mark.long
def test_history_of_an_older_version_ends_with_it_while_others_go_on_writing(spark: SparkSession, lake: Lake) -> None:
    uri = lake.path("t")
    rows = results(spark, (1, FIRST))
    delta.create(uri, rows.schema, append_only=True, description="one row a commit")
    append_numbered(rows, uri, range(20))
    opened = delta.open_table(uri, 18)
    assert opened is not None
    append_numbered(rows, uri, [20])

    metadata = {commit["version"]: commit["userMetadata"] for commit in commits_of(opened)}
    assert metadata == {0: None} | {number + 1: {"number": number} for number in range(18)}
    assert [commit["version"] for commit in commits_of(opened)[:2]] == [18, 17]


def test_a_number_stays_with_the_table_from_its_commit_on_until_another_one_is_committed(
    spark: SparkSession, lake: Lake
) -> None:
    uri = lake.path("t")
    rows = results(spark, (1, FIRST))
    delta.create(uri, rows.schema, append_only=True, description="one row")
    assert delta.opened(uri).transaction_version("query") is None
    for number, numbers in ((0, {"query": 0}), (0, {"another": 9}), (1, {"query": 1})):
        delta.append(rows, uri, numbers=numbers)
        assert delta.opened(uri).transaction_version("query") == number


def test_numbers_that_are_asked_together_are_those_of_the_version_whoever_committed_last(
    spark: SparkSession, lake: Lake
) -> None:
    uri, names = lake.path("t"), ("followed", "closed", "never")
    delta.create(uri, results(spark).schema, append_only=False, description="numbers")
    committed: list[dict[str, int]] = [{}, {"followed": 0, "closed": 5}, {"followed": 1}, {}, {"closed": 4, "other": 1}]
    for numbers in committed[1:]:
        delta.note(uri, says={}, numbers=numbers)
    expected = [{"followed": 0, "closed": 5}, {"followed": 1, "closed": 5}, {"followed": 1, "closed": 5}]
    expected = [{}, *expected, {"followed": 1, "closed": 4}]
    assert [numbers_named(delta.opened(uri, version), names) for version in range(5)] == expected
    clean_up(delta.opened(uri), utc_now() + timedelta(days=1))
    write_deltalake(uri, pa.table({"n": pa.array([1], pa.int32()), "_day": [FIRST]}), mode="append")
    assert numbers_named(delta.opened(uri), names) == expected[-1]
    assert numbers_named(None, names) == {}


@pytest.mark.parametrize("adds_a_column", [False, True])
def test_no_row_is_committed_to_a_version_that_the_fence_has_not_seen(
    spark: SparkSession, lake: Lake, adds_a_column: bool
) -> None:
    """Also where a column is added first, which is a commit of its own that passes over another process's."""
    uri = lake.path("t")
    rows = results(spark, (1, FIRST))
    delta.create(uri, rows.schema, append_only=True, description="one row")
    staged = delta.stage(rows.withColumn("more", F.lit(2)) if adds_a_column else rows, uri)
    seen: list[int] = []

    def fence(table: DeltaTable) -> None:
        if not seen:
            # Another process comes in between, as its version is looked at.
            delta.append(results(spark, (9, FIRST)), uri)
        seen.append(table.version())

    staged.commit({}, fence=fence)
    assert seen[-1] == delta.opened(uri).version() - 1


def test_an_append_only_table_refuses_to_lose_rows(spark: SparkSession, lake: Lake) -> None:
    uri = lake.path("t")
    rows = results(spark, (1, FIRST))
    delta.create(uri, rows.schema, append_only=True, description="one row")
    delta.append(rows, uri)
    with pytest.raises(Exception, match=r"(?i)append"):
        delta.replace_days(rows, uri, [FIRST], says={})
    assert content(spark, uri) == {(1, FIRST)}


def test_no_instant_is_too_early_or_too_late_for_the_bounds_of_a_file(spark: SparkSession, lake: Lake) -> None:
    uri, first, last = lake.path("t"), -62_135_596_800_000_000, 253_402_300_799_999_999
    instants = [(first,), (-1,), (last,), (first - 1,), (last + 1,)]  # the last two are outside Python's years
    frame = spark.createDataFrame(instants, "micros bigint").selectExpr(
        "micros", "timestamp_micros(micros) as at", "cast(null as date) as _day"
    )
    delta.create(uri, frame.schema, append_only=True, description="a file for each instant")
    for (micros,) in instants:
        delta.append(frame.where(f"micros = {micros}"), uri, statistics=("at",))

    def found(condition: str) -> list[int]:
        rows = spark.read.format("delta").load(uri).where(condition)
        return sorted(row["micros"] for row in rows.select("micros").collect())

    assert found("at <= timestamp'0001-01-01T00:00:00Z'") == [first - 1, first]
    assert found("at = timestamp'1969-12-31T23:59:59.999999Z'") == [-1]
    assert found("at >= timestamp'9999-12-31T23:59:59.999999Z'") == [last, last + 1]
    table = delta.open_table(uri)
    assert table is not None
    stats = [json.loads(action["stats"]) for action in _added(table)]
    bounds = sorted((entry["minValues"]["at"], entry["maxValues"]["at"]) for entry in stats if "minValues" in entry)
    assert bounds == [
        ("0001-01-01T00:00:00.000Z", "0001-01-01T00:00:00.000Z"),
        ("1969-12-31T23:59:59.999Z", "1970-01-01T00:00:00.000Z"),
    ]


def _added(table: DeltaTable) -> list[dict[str, Any]]:
    """The add actions of the table's commits, as they are stored."""
    log = Path(table.table_uri.removeprefix("file://")) / "_delta_log"
    lines = [json.loads(line) for commit in sorted(log.glob("*.json")) for line in commit.read_text().splitlines()]
    return [line["add"] for line in lines if "add" in line]


@pytest.mark.long
def test_no_commit_removes_an_entry_however_old(spark: SparkSession, lake: Lake) -> None:
    uri = lake.path("t")
    rows = results(spark, (1, FIRST))
    delta.create(uri, rows.schema, append_only=True, description="one row a commit")
    append_numbered(rows, uri, range(12))
    for entry in Path(uri, "_delta_log").iterdir():
        os.utime(entry, (0, 0))
    append_numbered(rows, uri, range(12, 22))  # beyond the next checkpoint, which is when Delta cleans up
    metadata = [commit["userMetadata"] for commit in commits_of(delta.opened(uri))]
    assert metadata == [*({"number": number} for number in reversed(range(22))), None]


def test_an_open_table_is_brought_up_to_the_newest_version_also_where_entries_between_are_gone(lake: Lake) -> None:
    uri = lake.path("t")
    write_deltalake(uri, pa.table({"n": [0]}))
    table = delta.opened(uri)
    delta.refresh(table)
    assert table.version() == 0
    write_deltalake(uri, pa.table({"n": [1]}), mode="append")
    delta.refresh(table)
    assert table.version() == 1
    for number in range(2, 6):
        write_deltalake(uri, pa.table({"n": [number]}), mode="append")
    clean_up(delta.opened(uri), utc_now() + timedelta(days=1))
    assert not Path(uri, "_delta_log", f"{2:020}.json").exists()
    delta.refresh(table)
    assert table.version() == 5


def test_the_checksum_of_a_commit_is_what_the_entries_up_to_it_come_to(spark: SparkSession, lake: Lake) -> None:
    uri = lake.path("t")
    rows = results(spark, (1, FIRST), (2, SECOND))
    delta.create(uri, rows.schema, append_only=False, description="two days")
    checksums: dict[int, dict[str, Any]] = {}
    for commit in (
        lambda: delta.append(rows, uri, numbers={"query": 0}),
        lambda: delta.replace_days(results(spark, (3, FIRST)), uri, [FIRST], says={}),
        lambda: delta.append(rows.withColumn("new", F.lit("text")), uri),  # the column is a commit before
    ):
        commit()
        # On a disk only the newest one stays, but for what a column has left behind.
        checksums |= {int(each.stem): json.loads(each.read_text()) for each in Path(uri, "_delta_log").glob("*.crc")}
    assert sorted(int(each.stem) for each in Path(uri, "_delta_log").glob("*.crc")) == [2, 4]

    sizes: dict[str, int] = {}
    newest: dict[str, Any] = {}
    versions = []
    for entry in sorted(Path(uri, "_delta_log").glob("*.json")):
        for kind, action in (next(iter(json.loads(line).items())) for line in entry.read_text().splitlines()):
            if kind == "add":
                sizes[action["path"]] = action["size"]
            elif kind == "remove":
                del sizes[action["path"]]
            else:
                newest[kind] = action
        if (checksum := checksums.get(int(entry.stem))) is not None:
            assert (checksum["numFiles"], checksum["tableSizeBytes"]) == (len(sizes), sum(sizes.values()))
            assert (checksum["metadata"], checksum["protocol"]) == (newest["metaData"], newest["protocol"])
            assert (checksum["numMetadata"], checksum["numProtocol"]) == (1, 1)
            versions.append(int(entry.stem))
    assert versions == [1, 2, 4]


def test_spark_sees_a_new_version_without_a_job(spark: SparkSession, lake: Lake) -> None:
    uri, without = lake.path("t"), lake.path("without")
    rows = results(spark, (1, FIRST))
    delta.create(uri, rows.schema, append_only=True, description="a row")
    delta.append(rows, uri)
    shutil.copytree(uri, without)
    for checksum in Path(without, "_delta_log").glob("*.crc"):
        checksum.unlink()

    def jobs(table: str) -> int:
        spark.sparkContext.setJobGroup(table, table)
        assert spark.read.format("delta").load(table).schema == rows.schema
        return len(spark.sparkContext.statusTracker().getJobIdsForGroup(table))

    try:
        assert jobs(uri) == 0
        assert jobs(without) > 0
    finally:
        # None takes it away, which the library's types do not know.
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
        spark.sparkContext.setJobDescription(None)  # type: ignore[arg-type]


def test_threads_that_read_rows_without_spark_never_call_python(lake: Lake) -> None:
    """One that did while its process ended aborted it, in one process of eight at worst."""
    uri = lake.path("a table")
    for number in range(3):
        write_deltalake(uri, pa.table({"n": [number]}), mode="append")
    opened = DeltaTable(uri)
    assert delta.contents(opened, [("n", ">", 0)]).sort_by("n").to_pydict() == {"n": [1, 2]}
    assert files_of(opened).base_fs.type_name == "local"


def test_a_file_has_bounds_of_all_columns_that_json_has_exactly_or_of_none(tmp_path: Path) -> None:
    columns = {
        "number": [1, 2],
        "price": [Decimal("0.10"), Decimal("12345678901234567.89")],
        "day": [FIRST, SECOND],
        "raw": [b"a", b"b"],
        "ratio": [0.5, float("inf")],
    }
    pq.write_table(pa.table(columns), tmp_path / "file.parquet")
    footer = pq.ParquetFile(tmp_path / "file.parquet").metadata
    assert file_statistics(footer, ["number", "day", "later"]) == {
        "numRecords": 2,
        "minValues": {"number": 1, "day": "2026-01-01"},
        "maxValues": {"number": 2, "day": "2026-01-02"},
        "nullCount": {"number": 0, "day": 0, "later": 2},
    }
    for name in ("price", "raw", "ratio"):
        assert file_statistics(footer, ["number", name]) == {"numRecords": 2, "nullCount": {"number": 0, name: 0}}
