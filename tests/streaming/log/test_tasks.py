"""Rows that tasks are certain of are those that Spark makes of the same payloads, in every column and every count."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streaming import (
    BoundedOutOfOrderness,
    Csv,
    Files,
    Json,
    Pipeline,
    Punctuated,
    Rule,
    SessionWindow,
    Sliding,
    Stream,
    Text,
    Tumbling,
    Windowed,
    agg,
    log,
)
from streaming.base import LogError, SourceError
from streaming.lake.lake import Lake
from streaming.log import tasks
from streaming.log.judgement import Judgement
from streaming.log.places import Places
from streaming.log.tasks import TaskReport, percentiles
from streaming.operators import counts_of, runtime_of
from streaming.sources import files
from tests.support.instants import at
from tests.support.runs import run
from tests.support.seeds import LAW_SEED, draws
from tidemark.testing import Payload

CLOCK = BoundedOutOfOrderness("5 seconds", max_ahead="1 day", max_behind="400 days")
JSON = Stream(
    name="hostile",
    source=Files("landing/hostile", files_per_batch=1),
    format=Json(
        "id string not null, at timestamp, n bigint, value double, price decimal(9, 2), day date, "
        "tags array<string>, inner struct<a: int not null, b: string>"
    ),
    event_time="at",
    clock=CLOCK,
    rules=(
        Rule("positive", "value > 0 or value is null"),
        Rule("short", "length(id) <= 12"),
        Rule("known", "id not in ('x', 'y') and not (id like 'z%')"),
        Rule("ratio", "n is null or 100 / n < 60"),
    ),
    derived={"doubled": "n * 2", "hour": "hour(at)", "half": "value / 2"},
    retention="200 days",
)
FLAT = replace(
    JSON,
    format=Json("id string not null, at timestamp, n bigint, value double, day date"),
    retention=None,
    keep_raw=True,
    rules=JSON.rules[:3],
    clock=Punctuated(where="coalesce(n, 0) > 7 or value < 1"),
)
TABLE = replace(
    JSON,
    format=Csv("id string not null, at timestamp, n bigint, value double"),
    derived={"at_second": "date_trunc('second', at)", "quotient": "n % 3"},
)
LINES = Stream(
    name="hostile",
    source=JSON.source,
    format=Text("line"),
    event_time="seen",
    clock=BoundedOutOfOrderness("0 seconds"),
    derived={"seen": "_ingested_at", "size": "length(line)"},
    rules=(Rule("no_colon", "line not like '%:%'"), Rule("ascii", "line rlike '^[ -~]*$'")),
)


def pipeline_of(stream: Stream) -> Pipeline:
    counted = {"rows": agg.count()}
    views = (
        Windowed("by_minute", stream, Tumbling("1 minute"), counted),
        Windowed("sliding", stream, Sliding("1 minute", "10 seconds"), counted),
        Windowed("sessions", stream, SessionWindow("30 seconds"), counted),
    )
    return Pipeline(stream, views)


TIMES = (
    *(at(second).isoformat() for second in (0, 1, 59.999999, 60, 61, 3_600, -90_000)),
    *("2026-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "2100-01-01T00:00:00Z", "0099-12-31T00:00:00Z"),
    *("9999-12-31T23:59:59.999999Z", "2026-01-01", "2026-01-01T00:00:00", "2026-02-30T00:00:00Z", "", "soon"),
)
TEXTS = ("a", "", "x", "zed", "é", "ein sehr langer Name", "\U0001f600", "İı", " b ", "null", "a\u2028b")
NUMBERS = (
    "0",
    "1",
    "-1",
    "7",
    "3.5",
    "-0",
    "-0.0",
    "1e3",
    "9223372036854775807",
    "9223372036854775808",
    "1e400",
    "NaN",
)
WHOLE = ("{}", "[]", "null", '{"id": "a"', "{]}", '{"id": "a"} {"id": "b"}', "", " ", "\u00ff", '{"id":"\\ud800"}')


def hostile_objects(random: Random, number: int, fields: int) -> list[Payload]:
    """Lines that are mostly objects of the stream, and often with something wrong."""
    return [hostile_object(random, fields) for _ in range(number)]


def hostile_object(random: Random, fields: int) -> Payload:
    if random.random() < 0.06:
        whole = random.choice(WHOLE)
        return whole.encode("latin-1") if whole == "\u00ff" else whole
    quoted = (*TEXTS, *TIMES)
    members = {
        "id": lambda: json.dumps(random.choice(TEXTS)),
        "at": lambda: json.dumps(at(random.randrange(0, 600)).isoformat()),
        "n": lambda: str(random.randrange(-3, 30)),
        "value": lambda: random.choice(("0.5", "2", "1e-7", "-4.25")),
        "day": lambda: '"2026-01-01"',
        "price": lambda: random.choice(("1.25", "10", "0.1")),
        "tags": lambda: json.dumps(random.sample(TEXTS, 2)),
        "inner": lambda: f'{{"a": {random.randrange(9)}, "b": "c"}}',
    }
    told = []
    for name, usual in [*members.items()][:fields]:
        drawn_ = random.random()
        if drawn_ < 0.04:
            continue
        odd = json.dumps(random.choice(quoted)) if random.random() < 0.5 else random.choice((*NUMBERS, "null", "{}"))
        told.append(f'"{name}": {odd if drawn_ < 0.12 else usual()}')
    if random.random() < 0.05:
        told.append('"other": 1')
    if random.random() < 0.02 and told:
        told.append(told[0])
    random.shuffle(told)
    return "{" + ", ".join(told) + "}"


def hostile_record(random: Random) -> Payload:
    """A record of CSV, often with something wrong."""
    fields = [
        random.choice(("a", "b", "", '"q,""q"', "zed", "é", random.choice(TEXTS))),
        at(random.randrange(600)).isoformat() if random.random() < 0.8 else random.choice(TIMES),
        str(random.randrange(-9, 99)) if random.random() < 0.8 else random.choice(NUMBERS),
        "0.5" if random.random() < 0.8 else random.choice(NUMBERS),
    ]
    if random.random() < 0.05:
        fields.pop()
    return ",".join(fields)


def hostile_batches(stream: Stream, random: Random, number: int) -> list[list[Payload]]:
    if isinstance(stream.format, Json):
        fields = len(stream.format.columns)
        return [hostile_objects(random, number, fields) for _ in range(3)]
    if isinstance(stream.format, Csv):
        return [[hostile_record(random) for _ in range(number)] for _ in range(3)]
    return [[random.choice((*TEXTS, *TIMES, *WHOLE)) for _ in range(number)] for _ in range(2)]


def places(spark: SparkSession, lake: Lake, pipeline: Pipeline) -> Places:
    stream = pipeline.stream
    runtimes = [runtime_of(operator, lake) for operator in pipeline.operators_of(stream)]
    return log.places_of_ingest(spark, stream, counts_of(runtimes, stream))


@pytest.mark.sampled
@pytest.mark.parametrize(
    "stream",
    [
        pytest.param(JSON, id="nested"),
        pytest.param(FLAT, id="flat", marks=pytest.mark.long),
        pytest.param(TABLE, id="csv", marks=pytest.mark.long),
        pytest.param(LINES, id="text"),
    ],
)
def test_tasks_write_and_count_what_spark_writes_and_counts_for_the_same_hostile_payloads(
    spark: SparkSession, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: Stream
) -> None:
    batches = hostile_batches(stream, draws("tasks", type(stream.format).__name__), 250)
    pipeline = pipeline_of(stream)
    assert places(spark, lake, pipeline).judgement is not None

    by_mode = {}
    for mode in ("careful", "fast"):
        monkeypatch.setenv("TIDEMARK_INGEST", mode)
        own = Lake(str(tmp_path / mode))
        run(spark, own, pipeline, *batches)
        rows = log.read_log(spark, own, stream).where("_origin is not null")
        place = F.struct(F.regexp_extract("_origin.path", "[^/]*$", 0), "_origin.modified", "_origin.size")
        told = (
            rows.withColumn("_origin", place).drop("_ingested_at")
            if stream is LINES
            else rows.withColumn("_origin", place)
        )
        by_mode[mode] = (
            sorted(str(row) for row in told.toArrow().to_pylist()),
            [without_checkpoint(batch) for batch in log.read_batches(own, stream) if batch.cause == "source"],
        )
    assert by_mode["fast"][0] == by_mode["careful"][0], f"seed {LAW_SEED}"
    assert by_mode["fast"][1] == by_mode["careful"][1], f"seed {LAW_SEED}"


def test_the_places_of_a_stream_are_found_once_for_the_same_counts(spark: SparkSession, lake: Lake) -> None:
    found = places(spark, lake, pipeline_of(FLAT))
    assert places(spark, Lake(f"{lake.root}/other"), pipeline_of(FLAT)) is found
    assert log.places_of_ingest(spark, FLAT, {}) is not found


def without_checkpoint(batch: log.Batch) -> dict[str, Any]:
    told = batch.to_json()
    # Another lake has another query, and lands its files at another time.
    return {name: value for name, value in told.items() if name not in ("query", "source", "source_times")}


@pytest.mark.sampled
@pytest.mark.parametrize("little", [tasks._LITTLE, -1], ids=["in the driver", "in a job"])
def test_both_ways_agree_about_a_stream_and_append_each_row_once(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch, little: int
) -> None:
    monkeypatch.setenv("TIDEMARK_INGEST", "both")
    monkeypatch.setattr(tasks, "_LITTLE", little)
    batches = hostile_batches(JSON, draws("both"), 60)
    run(spark, lake, pipeline_of(JSON), *batches)
    rows = log.read_log(spark, lake, JSON).where("_origin is not null").count()
    # An empty line is a payload, too.
    assert rows == sum(map(len, batches))


def test_both_ways_stop_a_stream_whose_rows_differ(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMARK_INGEST", "both")
    known = log.places_of_ingest

    def forgetful(*args: Any) -> Places:
        found = known(*args)
        assert isinstance(found.judgement, Judgement)
        return replace(found, judgement=replace(found.judgement, rules=()))

    monkeypatch.setattr("streaming.log.ingest.places_of_ingest", forgetful)
    with pytest.raises((LogError, StreamingQueryException), match="is another one through Spark and by tasks"):
        run(spark, lake, pipeline_of(JSON), [{"id": "x", "at": at(1).isoformat()}])
    assert log.head(lake, JSON) is None


@pytest.mark.long
def test_a_rule_that_only_spark_can_judge_rejects_what_it_would_have_rejected(
    spark: SparkSession, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the counts of rows that come before and after the one that is refused."""
    rule = Rule("odd", "xxhash64(id) % 2 <> 0")
    stream = replace(FLAT, rules=(rule, *FLAT.rules), keep_raw=False)
    pipeline = pipeline_of(stream)
    found = places(spark, lake, pipeline)
    assert [each.name for each in found.rules] == ["odd"] and found.judgement is not None

    def readings(*names: str) -> list[Payload]:
        return [{"id": name, "at": at(1).isoformat()} for name in names]

    hashes = spark.createDataFrame([(name,) for name in "abcdefgh"], "id string").selectExpr("id", rule.condition)
    good, bad = ([row[0] for row in hashes.collect() if row[1] is is_good] for is_good in (True, False))
    batches = [
        readings(*good),
        readings(*good, bad[0]),
        readings(good[0], bad[1]),
        readings(*good),
        ["no", *readings(bad[0])],
    ]
    told = {}
    for mode in ("careful", "fast"):
        monkeypatch.setenv("TIDEMARK_INGEST", mode)
        own = Lake(str(tmp_path / mode))
        run(spark, own, pipeline, *batches)
        rows = log.read_log(spark, own, stream).where("_origin is not null")
        told[mode] = sorted(map(str, rows.select("id", "_rejected", "_batch", "_day").collect()))
    assert told["fast"] == told["careful"]
    assert sum("odd: not" in row for row in told["fast"]) == 3


def test_the_payloads_that_tasks_put_aside_are_gone_once_their_batch_is_in_the_log(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMARK_INGEST", "fast")
    stream = replace(JSON, rules=(Rule("ratio", "100 / n < 60"),))
    run(spark, lake, pipeline_of(stream), [{"id": "a", "at": at(1).isoformat(), "n": n} for n in (0, 5)])
    rows = log.read_log(spark, lake, stream).where("_origin is not null").select("n", "_rejected").collect()
    assert {row["n"]: (row["_rejected"] or [""])[0][:22] for row in rows} == {0: "ratio: cannot be judge", 5: ""}
    committed = {Path(path).name for path in log.read_log(spark, lake, stream).inputFiles()}
    assert {path.name for path in Path(lake.log(stream), "data").rglob("*.parquet")} == committed


@pytest.mark.parametrize("little", [tasks._LITTLE, -1], ids=["in the driver", "in a job"])
def test_a_file_that_vanishes_while_it_is_read_is_named(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch, little: int
) -> None:
    monkeypatch.setattr(tasks, "_LITTLE", little)
    monkeypatch.setenv("TIDEMARK_INGEST", "fast")
    shared_out = files.shared_out

    def and_vanish(*args: Any) -> Any:
        parts = shared_out(*args)
        for path in Path(JSON.source.location(lake)).glob("*.json"):
            path.unlink()
        return parts

    monkeypatch.setattr(files, "shared_out", and_vanish)
    with pytest.raises(SourceError, match=r"a file vanished before its batch was committed: file:/.*0000\.json\. Put"):
        run(spark, lake, pipeline_of(JSON), [{"id": "a", "at": at(1).isoformat()}])


@pytest.mark.parametrize("values", [[5], [1, 2], [1, 1, 2, 9], [3, 3, 3, 100, 7, 7]])
def test_percentiles_of_counts_are_those_of_spark(spark: SparkSession, values: list[int]) -> None:
    shares = (0.5, 0.05, 0.01)
    frame = spark.createDataFrame([(value,) for value in values], "v bigint")
    row = frame.agg(F.percentile("v", F.array(*map(F.lit, shares)))).first()
    assert row is not None
    assert percentiles({value: values.count(value) for value in values}, shares) == row[0]
    assert percentiles({}, shares) is None


def test_a_report_survives_its_way_to_the_driver() -> None:
    report = TaskReport(
        rows={"p": 3}, rejected=1, greatest={"p": None, "q": 5}, source_times={10: 2}, unknown={"a": 1}, late={"v": 4}
    )
    assert TaskReport.from_json(report.to_json()) == report
    both = report + TaskReport(rows={"p": 1}, greatest={"p": 7}, source_times={10: 1, 11: 1})
    assert (both.rows, both.greatest, both.source_times) == ({"p": 4}, {"p": 7, "q": 5}, {10: 3, 11: 1})
