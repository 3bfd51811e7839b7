"""Rules that reject, warn or stop: which row breaks which rule, by tasks and by Spark, against plain Python."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streaming import (
    BoundedOutOfOrderness,
    Csv,
    Files,
    Json,
    Pipeline,
    Rule,
    Stream,
    Tumbling,
    Windowed,
    agg,
    log,
)
from streaming.audit import audit
from streaming.base import RuleViolation
from streaming.declare.rule import OnViolation
from streaming.lake.lake import Lake
from streaming.operations import repair
from streaming.reading import stored_rows
from tests.support.instants import NOW, at
from tests.support.runs import run
from tests.support.seeds import LAW_SEED, draws
from tidemark.testing import Payload

Row = dict[str, Any]
COLUMNS = "id string, at timestamp, a bigint, b bigint, code string"
NUMBERS = (None, 0, 1, -1, 2, 7, -8, 2**31, -(2**63) + 1)
CODES = (None, "", "x", "y", "zed", "é", " x ", "x" * 30)


def holds(asked: Callable[[Row], bool | None]) -> Callable[[Row], bool]:
    """True where the answer is; what cannot be computed does not hold."""

    def of(row: Row) -> bool:
        try:
            return asked(row) is True
        except (ZeroDivisionError, TypeError):
            return False

    return of


RULES: dict[str, tuple[str, Callable[[Row], bool]]] = {
    "ratio": ("a / b > 0.5", holds(lambda row: row["a"] / row["b"] > 0.5)),
    "least": ("a >= 0 or a is null", holds(lambda row: row["a"] is None or row["a"] >= 0)),
    "known": ("code in ('x', 'y', 'zed')", holds(lambda row: row["code"] in ("x", "y", "zed"))),
    "early": (f"at < timestamp '{at(300).isoformat()}'", holds(lambda row: row["second"] < 300)),
    # Only Spark computes it.
    "even": (
        "crc32(code) % 2 = 0",
        holds(lambda row: row["code"] is not None and zlib.crc32(row["code"].encode()) % 2 == 0),
    ),
}


def stream_of(rules: tuple[Rule, ...], form: Csv | Json | None = None, **more: Any) -> Stream:
    return Stream(
        name="orders",
        source=Files("landing/orders", files_per_batch=1),
        format=form or Json(COLUMNS),
        event_time="at",
        clock=BoundedOutOfOrderness("5 seconds"),
        rules=rules,
        **more,
    )


def pipeline_of(stream: Stream) -> Pipeline:
    return Pipeline(stream, (Windowed("by_minute", stream, Tumbling("1 minute"), {"rows": agg.count()}),))


def drawn(random: Random, number: int) -> list[Row]:
    return [
        {
            "id": str(place),
            "second": random.randrange(600),
            "a": random.choice(NUMBERS),
            "b": random.choice(NUMBERS),
            "code": random.choice(CODES),
        }
        for place in range(number)
    ]


def payload(row: Row, form: Csv | Json) -> Payload:
    values = {"id": row["id"], "at": at(row["second"]).isoformat(), **{name: row[name] for name in ("a", "b", "code")}}
    if isinstance(form, Json):
        return json.dumps(values)
    return ",".join(
        "" if value is None else f'"{value}"' if name == "code" else str(value) for name, value in values.items()
    )


def verdicts(rows: list[Row], rules: tuple[Rule, ...]) -> dict[str, tuple[list[str] | None, list[str] | None]]:
    """For each row the rules that it is rejected for, and of a valid one those that warn; None for none."""
    told = {}
    for row in rows:
        broken = [rule for rule in rules if not RULES[rule.name][1](row)]
        rejected = [rule.name for rule in broken if rule.on_violation == "reject"]
        warned = [] if rejected else [rule.name for rule in broken]
        told[row["id"]] = (rejected or None, warned or None)
    return told


def found(spark: SparkSession, lake: Lake, stream: Stream) -> dict[str, tuple[list[str] | None, list[str] | None]]:
    rows = log.read_log(spark, lake, stream.revisions).where("_origin is not null and id is not null").collect()
    names = {
        row["id"]: None if row["_rejected"] is None else [each.split(":")[0] for each in row["_rejected"]]
        for row in rows
    }
    assert len(names) == len(rows)
    return {row["id"]: (names[row["id"]], row["_warned"]) for row in rows}


@pytest.mark.sampled
@pytest.mark.parametrize("form", [Json(COLUMNS), Csv(COLUMNS)], ids=["json", "csv"])
@pytest.mark.parametrize("arrow_only", [True, False], ids=["proven", "with a rule of Spark alone"])
def test_both_ways_warn_of_exactly_the_rows_that_plain_python_warns_of(
    spark: SparkSession,
    lake: Lake,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    form: Csv | Json,
    arrow_only: bool,
) -> None:
    random = draws("on violation", type(form).__name__, arrow_only)
    names = [name for name in RULES if name != "even" or not arrow_only]
    choices: tuple[OnViolation, ...] = ("reject", "warn", "warn")
    kinds: dict[str, OnViolation] = {name: random.choice(choices) for name in names}
    kinds["least"] = "warn"
    rules = tuple(Rule(name, RULES[name][0], on_violation=kind) for name, kind in kinds.items())
    stream = stream_of(rules, form)
    batches = [drawn(random, 60), drawn(random, 40)]
    if isinstance(form, Csv):
        # A field that is empty and quoted is a text in one place and null in the other.
        batches = [[{**row, "code": row["code"] or "x"} for row in rows] for rows in batches]
    for place, row in enumerate(batches[1]):
        row["id"] = f"second {place}"
    expected = verdicts([row for rows in batches for row in rows], rules)
    for mode in ("careful", "fast"):
        monkeypatch.setenv("TIDEMARK_INGEST", mode)
        own = Lake(str(tmp_path / mode))
        lines = [[payload(row, form) for row in rows] for rows in batches]
        run(spark, own, pipeline_of(stream), [*lines[0], "{no" if isinstance(form, Json) else "no"], lines[1])

        assert found(spark, own, stream) == expected, f"{mode}, seed {LAW_SEED}"
        told = [batch for batch in log.read_batches(own, stream) if batch.cause == "source"][::-1]
        for batch, rows in zip(told, batches, strict=True):
            of_rows = verdicts(rows, rules).values()
            counts = Counter(name for _, warned in of_rows for name in warned or ())
            assert batch.warned == {name: counts[name] for name, kind in kinds.items() if kind == "warn"}
            reasons = Counter(name for rejected, _ in of_rows for name in rejected or ())
            assert {name: number for name, number in batch.reasons.items() if name in kinds} == reasons
        shown = stored_rows(own, pipeline_of(stream), pipeline_of(stream).views[0], "warned")
        assert shown is not None and {"_warned", "id", "_origin", "_batch"} <= {*shown.columns}
    assert all(finding.holds for finding in audit(spark, own, pipeline_of(stream)))


STOPS = Rule("positive", "a > 0", on_violation="stop")
GOOD: list[Row] = [{"id": "a", "at": at(1).isoformat(), "a": 1}, {"id": "b", "at": at(2).isoformat(), "a": 2}]
BAD: list[Row] = [
    {"id": "c", "at": at(3).isoformat(), "a": 3},
    {"id": "d", "at": at(4).isoformat(), "a": -4},
    {"id": "e", "at": "soon", "a": -5},
    {"id": "f", "at": at(5).isoformat()},
]


@pytest.mark.sampled
@pytest.mark.parametrize("mode", ["careful", "fast", "both"])
@pytest.mark.parametrize("condition", ["a > 0", "a > 0 and crc32(id) >= 0"], ids=["proven", "of Spark alone"])
def test_a_rule_that_stops_lets_nothing_of_the_batch_in_and_once_it_warns_each_row_comes_once(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch, mode: str, condition: str
) -> None:
    monkeypatch.setenv("TIDEMARK_INGEST", mode)
    rule = replace(STOPS, condition=condition)
    pipeline = pipeline_of(stream_of((rule,)))
    stream = pipeline.stream
    run(spark, lake, pipeline, GOOD)

    attempts: list[list[list[Row]]] = [[BAD, [{"id": "g", "at": at(6).isoformat(), "a": 7}]], []]
    for attempt in attempts:
        with pytest.raises(RuleViolation) as stopped:
            run(spark, lake, pipeline, *attempt)
        assert stopped.value.rules == {"positive": 2}
        assert (stopped.value.stream, stopped.value.batch) == ("orders", 1)
        assert [row["a"] for row in stopped.value.rows] == [-4, None]
        assert all(row["_origin"]["path"].endswith("0001.json") for row in stopped.value.rows)
        assert "a=-4" in str(stopped.value) and "run again" in str(stopped.value)
        assert log.read_log(spark, lake, stream).where("_origin is not null").count() == 2
    committed = {Path(path).name for path in log.read_log(spark, lake, stream).inputFiles()}
    assert {path.name for path in Path(lake.log(stream), "data").rglob("*.parquet")} == committed

    warns = pipeline_of(stream_of((replace(rule, on_violation="warn"),)))
    run(spark, lake, warns)
    rows = log.read_log(spark, lake, stream).where("_origin is not null")
    told = {row["id"]: (row["_warned"], row["_batch"]) for row in rows.where("id is not null").collect()}
    assert told == {
        "a": (None, 0),
        "b": (None, 0),
        "c": (None, 1),
        "d": (["positive"], 1),
        "e": (None, 1),
        "f": (["positive"], 1),
        "g": (None, 2),
    }
    assert rows.count() == len(told)
    assert all(finding.holds for finding in audit(spark, lake, warns))


def test_a_file_that_is_corrected_lets_a_stopped_stream_go_on(spark: SparkSession, lake: Lake) -> None:
    pipeline = pipeline_of(stream_of((STOPS,)))
    with pytest.raises(RuleViolation):
        run(spark, lake, pipeline, BAD)
    (landed,) = Path(pipeline.stream.source.location(lake)).glob("*.json")
    landed.write_text("\n".join(json.dumps({**row, "a": 9}) for row in BAD))
    run(spark, lake, pipeline)
    rows = log.valid(log.read_log(spark, lake, pipeline.stream))
    assert sorted(row["id"] for row in rows.select("id").collect()) == ["c", "d", "f"]


def test_a_stream_with_a_key_warns_and_stops_and_its_changes_follow(spark: SparkSession, lake: Lake) -> None:
    warns = replace(STOPS, on_violation="warn")
    more: dict[str, Any] = {"key": ("id",), "sequence": "a", "deletes": "code = 'gone'"}
    pipeline = pipeline_of(stream_of((STOPS,), **more))
    rows = [
        {"id": "a", "at": at(1).isoformat(), "a": -1},
        # A row that says its key is gone need keep no rule.
        {"id": "b", "at": at(1).isoformat(), "a": -1, "code": "gone"},
    ]
    with pytest.raises(RuleViolation) as stopped:
        run(spark, lake, pipeline, rows)
    assert stopped.value.rules == {"positive": 1}
    assert not log.read_batches(lake, pipeline.stream.revisions)

    pipeline = pipeline_of(stream_of((warns,), **more))
    run(spark, lake, pipeline)
    assert found(spark, lake, pipeline.stream) == {"a": (None, ["positive"]), "b": (None, None)}
    stands = log.valid(log.read_log(spark, lake, pipeline.stream))
    assert [row["id"] for row in stands.collect()] == ["a"] and "_warned" not in stands.columns


def test_rows_that_come_back_are_warned_of_and_a_rule_that_stops_keeps_all_of_them_out(
    spark: SparkSession, lake: Lake
) -> None:
    rejects = pipeline_of(stream_of((replace(STOPS, on_violation="reject"),)))
    run(spark, lake, rejects, [{"id": "a", "at": at(1).isoformat(), "a": -1}])

    with pytest.raises(RuleViolation, match="positive"):
        repair(spark, lake, pipeline_of(stream_of((STOPS,))), lambda: NOW)
    assert log.valid(log.read_log(spark, lake, rejects.stream)).count() == 0

    warns = pipeline_of(stream_of((replace(STOPS, on_violation="warn"),)))
    assert repair(spark, lake, warns, lambda: NOW).repaired == 1
    rows = log.valid(log.read_log(spark, lake, rejects.stream)).select("id", "_warned").collect()
    assert [(row["id"], row["_warned"]) for row in rows] == [("a", ["positive"])]
    newest = log.head(lake, warns.stream)
    assert newest is not None and newest.warned == {"positive": 1}


def test_a_log_without_warnings_is_widened_and_one_whose_rule_rejects_again_goes_on(
    spark: SparkSession, lake: Lake
) -> None:
    rejects = pipeline_of(stream_of((replace(STOPS, on_violation="reject"),)))
    warns = pipeline_of(stream_of((replace(STOPS, on_violation="warn"),)))
    for place, pipeline in enumerate((rejects, warns, rejects)):
        run(spark, lake, pipeline, [{"id": str(place), "at": at(place).isoformat(), "a": -1}])
    rows = log.read_log(spark, lake, rejects.stream).where(F.col("_origin").isNotNull())
    told = sorted((row["id"], row["_rejected"] is None, row["_warned"]) for row in rows.collect())
    assert told == [("0", False, None), ("1", True, ["positive"]), ("2", False, None)]
