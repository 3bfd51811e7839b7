"""What `streaming/spark/FACTS.md` says of Spark and delta-rs, where nothing else shows it."""

from __future__ import annotations

import gc
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from streaming import Files
from streaming.lake.lake import Lake
from streaming.sources import Reading
from streaming.spark import frame_of_arrow
from streaming.spark.checkpoint import taken_entry
from tests.support.feeds import land
from tests.support.instants import at
from tests.support.runs import tuples


def test_a_streaming_frame_cannot_number_its_rows(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.readStream.format("rate").load()

    def started(frame: DataFrame) -> None:
        frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start().stop()

    with pytest.raises(AnalysisException, match="monotonically_increasing_id"):
        started(rows.withColumn("position", F.monotonically_increasing_id()))


def test_a_filter_on_the_bounds_of_a_batch_session_makes_another_session_of_it(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("a", at(0)), ("a", at(4)), ("a", at(8))], "id string, at timestamp")
    sessions = rows.groupBy("id", F.session_window("at", "5 seconds").alias("session")).agg(
        F.count(F.lit(1)).alias("rows"), F.max("at").alias("last")
    )
    assert tuples(sessions, "session.end", "rows") == [(at(13), 3)]
    assert tuples(sessions.where(F.col("last") <= at(4))) == []
    assert tuples(sessions.where(F.col("session.end") <= F.lit(at(9))), "session.end", "rows") == [(at(9), 2)]


def test_python_workers_are_the_drivers_python(spark: SparkSession) -> None:
    def executable(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"python": [sys.executable] * batch.num_rows})

    (row,) = spark.range(1).mapInArrow(executable, "python string").collect()
    assert row["python"] == sys.executable


def test_a_worker_does_not_look_for_garbage_among_modules_after_each_task(spark: SparkSession) -> None:
    def looked_at(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"never": [gc.get_freeze_count()], "always": [len(gc.get_objects())]})

    # The second of two tasks that follow one another is not the first one of its worker.
    _, row = (spark.range(1).mapInArrow(looked_at, "never bigint, always bigint").collect()[0] for _ in range(2))
    assert row["never"] > 10 * row["always"] > 0


def test_a_frame_of_an_arrow_table_has_the_rows_behind_a_chunk_without_any(spark: SparkSession) -> None:
    rows = pa.concat_tables([pa.table({"id": pa.array(part, pa.int64())}) for part in ([1], [], [2], [], [], [3])])
    assert [row.id for row in frame_of_arrow(spark, rows).collect()] == [1, 2, 3]
    # Once Spark reads all of them, nobody needs `frame_of_arrow`.
    assert spark.createDataFrame(rows).count() == 1


@pytest.mark.long
def test_delta_rs_takes_the_same_transaction_twice(tmp_path: Path) -> None:
    for _ in range(2):
        same = CommitProperties(app_transactions=[Transaction("query", 1)])
        write_deltalake(str(tmp_path), pa.table({"value": [1]}), mode="append", commit_properties=same)
    table = DeltaTable(str(tmp_path))
    assert (table.transaction_version("query"), table.to_pyarrow_table().num_rows) == (1, 2)


@pytest.mark.long
def test_delta_rs_lets_two_compactions_of_the_same_files_pass_and_the_rows_are_there_twice(tmp_path: Path) -> None:
    for value in range(3):
        write_deltalake(str(tmp_path), pa.table({"value": [value]}), mode="append")
    one, other = DeltaTable(str(tmp_path)), DeltaTable(str(tmp_path))
    one.optimize.compact()
    other.optimize.compact()
    assert sorted(DeltaTable(str(tmp_path)).to_pyarrow_table()["value"].to_pylist()) == [0, 0, 1, 1, 2, 2]


def test_the_file_source_keeps_every_path_it_took(spark: SparkSession, lake: Lake) -> None:
    source, landing, checkpoint = Files("landing"), Path(lake.path("landing")), Path(lake.path("checkpoint"))
    for number in range(21):
        land(landing, [f"{number}"])
    query = (
        source.read(spark, Reading(lake, str(checkpoint)))
        .writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    compacted = (checkpoint / "sources/0/19.compact").read_text().splitlines()[1:]
    assert sorted(json.loads(line)["batchId"] for line in compacted) == list(range(20))
    assert [file.batch for file in taken_entry(str(checkpoint), 19, 18) or ()] == [19]


def test_a_sketch_counts_in_one_pass_exactly_while_there_are_few_items_and_prints_no_warning(
    spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    observed = Observation()
    items = F.call_function("approx_top_k", F.expr("nullif(id % 3, 0)"), F.lit(10), F.lit(10)).alias("items")
    spark.range(10).observe(observed, items).write.format("noop").mode("overwrite").save()
    assert dict(observed.get["items"]) == {None: 4, 1: 3, 2: 3}
    assert "Warning" not in capfd.readouterr().err


@pytest.fixture
def asked(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the JVM is told something, by Py4J's letter for it: to `c`all, to look up (`r`), to forget (`m`)."""
    client: Any = cast(Any, spark.sparkContext)._jvm._gateway_client
    send, asked = client.send_command, Counter[str]()

    def counted(command: str, *rest: Any, **options: Any) -> Any:
        asked[command.splitlines()[0]] += 1
        return send(command, *rest, **options)

    monkeypatch.setattr(client, "send_command", counted)
    return asked


def test_a_column_asks_the_jvm_once(asked: Counter[str]) -> None:
    F.col("value"), F.expr("value + 1")
    asked.clear()
    F.col("asked for once"), F.expr("'asked for once'")
    assert (asked["c"], asked["r"]) == (2, 0)
    F.col("asked for once"), F.expr("'asked for once'")
    assert (asked["c"], asked["r"]) == (2, 0)


def test_a_column_that_was_asked_for_before_is_as_random_as_a_new_one(spark: SparkSession) -> None:
    rows = spark.range(1).select(F.expr("uuid()").alias("one"), F.expr("uuid()").alias("other")).collect()
    assert rows[0]["one"] != rows[0]["other"]


def test_a_class_a_package_and_an_object_of_scala_are_looked_up_once(spark: SparkSession, asked: Counter[str]) -> None:
    java: Any = cast(Any, spark.sparkContext)._jvm

    def look_up() -> list[Any]:
        session = getattr(java, "org.apache.spark.sql.classic.SparkSession$")
        return [java.org.apache.hadoop.fs.Path, java.java.util.List.of, getattr(session, "MODULE$")]

    look_up()
    asked.clear()
    look_up()
    assert asked["r"] == 0
    # Its jar may come later.
    assert [asked["r"] for _ in range(2) if java.org.apache.ComesLater is not None] == [1, 2]


@pytest.mark.parametrize("number", [1, 10, 11, 25])
def test_columns_are_handed_over_ten_at_a_time_and_stay_in_order(
    spark: SparkSession, asked: Counter[str], number: int
) -> None:
    names = [f"c{place}" for place in range(number)]
    frame = spark.sql(f"select {', '.join(names)} from (select {', '.join(f'1 as {name}' for name in names)})")
    columns = [F.col(name) for name in reversed(names)]
    asked.clear()
    selected = frame.select(*columns)
    # Itself, the sequence, a list of each ten and, where these are several, one of them all.
    tens = -(-number // 10)
    assert asked["c"] == 2 + tens + (tens if tens > 1 else 0)
    assert selected.columns == names[::-1]
