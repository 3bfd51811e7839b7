"""Keys, sequences and values of many types go through what stands and come back as they were."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import BoundedOutOfOrderness, Files, Json, Lake, Pipeline, Stream, Tumbling, Windowed, agg
from streaming.audit.laws import audit
from streaming.log import read_log
from streaming.revisions.steps import rows_now
from tests.support.instants import at
from tests.support.runs import run, tuples


def stream_of(ddl: str, key: tuple[str, ...], sequence: str, **more: Any) -> Stream:
    return Stream(
        name="things",
        source=Files("landing/things"),
        format=Json(f"{ddl}, at timestamp"),
        event_time="at",
        clock=BoundedOutOfOrderness("10 seconds", max_ahead="30 days"),
        key=key,
        sequence=sequence,
        **more,
    )


def pipeline_of(stream: Stream) -> Pipeline:
    return Pipeline(stream, (Windowed("by_minute", stream, Tumbling("1 minute"), {"things": agg.count()}),))


def broken(spark: SparkSession, lake: Lake, pipeline: Pipeline) -> Sequence[object]:
    return [finding for finding in audit(spark, lake, pipeline) if not finding.holds]


def thing(seconds: float = 5, **values: Any) -> dict[str, Any]:
    return {"at": at(seconds).isoformat(), **values}


@pytest.mark.long
def test_values_of_all_types_are_taken_back_as_they_were_added(spark: SparkSession, lake: Lake) -> None:
    stream = stream_of(
        "id bigint, version int, note string, price decimal(38, 18), weight double, born date, seen timestamp, "
        "tags array<string>, place struct<lat: double, `far away`: array<bigint>>, more map<string, string>, "
        "none string",
        ("id",),
        "version",
    )
    pipeline = pipeline_of(stream)
    first = thing(
        id=1,
        version=1,
        note="\u00e4\U0001f600\x00'\"",
        price=0.1,
        weight=-0.0,
        born="0001-01-01",
        seen="9999-12-31T23:59:59.999999Z",
        tags=["a", None, ""],
        place={"lat": 1e308, "far away": [2**53 + 1, None]},
        more={"": "x", "k": None},
    )
    run(spark, lake, pipeline, [first, thing(id=2, version=1)])
    run(spark, lake, pipeline, [thing(id=1, version=2, tags=[]), thing(id=2, version=2, note="new")])
    log = read_log(spark, lake, stream).where("_day is not null")
    columns = [f"`{name}`" for name in stream.columns]
    added, taken_back = (
        tuples(log.where(f"_origin.change = {sign} and version = 1").select(*columns)) for sign in (1, -1)
    )
    assert len(added) == 2
    assert repr(added) == repr(taken_back)
    assert broken(spark, lake, pipeline) == []


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("ddl", "key", "sequence", "keys", "places"),
    [
        ("k string, s string", ("k",), "s", ["a", "A", "\u00e9", "e\u0301", ""], ["a", "b", "b\u0301"]),
        (
            "k bigint, j date, s timestamp",
            ("j", "k"),
            "s",
            [-(2**63), 2**63 - 1, 0],
            [f"2026-01-01T00:00:0{n}Z" for n in (1, 2, 3)],
        ),
        ("k decimal(20, 3), s decimal(38, 0)", ("k",), "s", [1.5, 2, -3], [10**37, 2 * 10**37, 3 * 10**37]),
        ("k boolean, s double", ("k",), "s", [True, False], [-1.5, 0.0, 1e300]),
        ("`K 1` string, `select` int", ("K 1",), "struct(`select` div 2, `select`)", ["a", "b"], [1, 2, 3]),
    ],
    ids=["texts", "two columns", "decimals", "booleans and doubles", "odd names and structs"],
)
def test_keys_and_sequences_of_any_type_find_what_stands(
    spark: SparkSession, lake: Lake, ddl: str, key: tuple[str, ...], sequence: str, keys: list[Any], places: list[Any]
) -> None:
    stream = stream_of(ddl, key, sequence)
    pipeline = pipeline_of(stream)
    own, place = stream.columns[0], next(name for name in stream.columns if name in ("s", "select"))
    more = {"j": "2026-01-01"} if "j" in stream.columns else {}
    for number in (0, 2, 1):
        # The one in the middle comes last, and changes nothing.
        run(spark, lake, pipeline, [thing(**{own: each, place: places[number], **more}) for each in keys])
    assert rows_now(spark, lake, stream).count() == len(keys)
    counted = (
        read_log(spark, lake, stream).where("_day is not null").groupBy("_batch").count().orderBy("_batch").collect()
    )
    assert [row["count"] for row in counted] == [len(keys), 2 * len(keys)]
    assert broken(spark, lake, pipeline) == []


def test_what_stands_is_found_after_its_buckets_have_become_more(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming.keyed.state_table.KEYS_PER_BUCKET", 4)
    stream = stream_of("id bigint, version int", ("id",), "version")
    pipeline = pipeline_of(stream)
    for number, keys in enumerate((range(10), range(5, 80), range(3), range(100))):
        run(spark, lake, pipeline, [thing(id=key, version=number) for key in keys])
    assert rows_now(spark, lake, stream).count() == 100
    assert broken(spark, lake, pipeline) == []


@pytest.mark.parametrize("mode", ["careful", "both"])
def test_a_delete_without_a_time_is_valid_whoever_ingests_it(
    spark: SparkSession, lake: Lake, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMARK_INGEST", mode)
    stream = stream_of("id bigint, version int, gone boolean", ("id",), "version", deletes="gone")
    pipeline = pipeline_of(stream)
    run(spark, lake, pipeline, [thing(id=1, version=1), *(thing(id=number, version=1) for number in (2, 3, 4))])
    gone: list[dict[str, Any]] = [
        {"id": 1, "version": 2, "gone": True},
        {"id": 2, "version": 2, "gone": False},
        {"id": None, "gone": True},
    ]
    # A time that would move the clock far ahead, or is long ago, is no reason to keep a row that is gone.
    gone += [
        {**thing(10**8), "id": 3, "version": 2, "gone": True},
        {**thing(-(10**8)), "id": 4, "version": 2, "gone": True},
    ]
    run(spark, lake, pipeline, gone)
    rejected = read_log(spark, lake, stream.revisions).where("_rejected is not null").orderBy("id").collect()
    assert [(row["id"], row["_rejected"][0].split(":")[0]) for row in rejected] == [(None, "key"), (2, "event_time")]
    assert [row["id"] for row in rows_now(spark, lake, stream).collect()] == [2]
    assert broken(spark, lake, pipeline) == []
