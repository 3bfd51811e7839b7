"""Chains of applications: one writes a table, others follow it, each stopped and started alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import (
    BoundedOutOfOrderness,
    Files,
    Json,
    Keyed,
    Lake,
    Pipeline,
    Rule,
    Selected,
    Side,
    Stream,
    Table,
    Then,
    Tumbling,
    Windowed,
    agg,
    log,
    maintain,
)
from streaming.audit.laws import audit
from streaming.base.errors import DeclarationError, SourceError
from streaming.base.intervals import utc_now
from streaming.operations.rebuild import rebuild
from streaming.operations.repair import repair
from streaming.views.results import read_first
from tests.streaming.keyed.functions import alert_on_jump
from tests.streaming.keyed.functions import readings as measured
from tests.support.feeds import land, readings
from tests.support.instants import NOW, at
from tests.support.runs import run, tuples

source = replace(measured, rules=(Rule("temperature_present", "temperature is not null"),))
counts = Windowed("counts", source, Tumbling("10 seconds"), {"readings": agg.count()}, by=("id",))
warm = Selected("warm", source, ("id",), where="temperature >= 20", sides={"cold": Side(("id",), "temperature < 20")})
jumps = Keyed("jumps", source, ("id",), "previous double", "temperature double, jump double", alert_on_jump)
upstream = Pipeline(source, (counts, warm, jumps))


def following(name: str, of: Any, columns: str, time: str, **table: Any) -> Pipeline:
    """An application that follows a table, and sums what it finds there."""
    stream = Stream(
        name=name,
        source=Table(of, **table),
        format=Json(columns),
        derived={"at": time},
        event_time="at",
        clock=BoundedOutOfOrderness("0 seconds"),
    )
    totals = Windowed(f"{name}_totals", stream, Tumbling("1 minute"), {"rows": agg.count()}, by=("id",))
    return Pipeline(stream, (totals,))


def of_the_log(name: str) -> Pipeline:
    return following(name, source, "id string not null, event_time timestamp, temperature double", "event_time")


def everything(spark: SparkSession, lake: Lake, pipeline: Pipeline) -> list[Any]:
    """The rows of its log, with where they come from, and its first results."""
    rows = log.valid(log.read_log(spark, lake, pipeline.stream))
    columns = (*(column.name for column in pipeline.stream.format.columns), "at")
    view = pipeline.views[0]
    return [
        tuples(rows, *columns, "_origin.unit", "_origin.position"),
        tuples(read_first(spark, lake, view), "id", "window_start", "rows"),
    ]


def broken(spark: SparkSession, lake: Lake, pipeline: Pipeline) -> list[str]:
    return [f"{finding.law}: {finding.subject}" for finding in audit(spark, lake, pipeline) if not finding.holds]


def tidied(lake: Lake, pipeline: Pipeline) -> None:
    """Nothing old is kept at all."""
    nothing = timedelta()
    maintain(lake, pipeline, retention=nothing, entry_retention=nothing, now=lambda: utc_now() + timedelta(days=1))


@pytest.mark.long
def test_o14_chain_stopped_for_ten_batches_ends_where_one_that_never_stopped_ends(
    spark: SparkSession, lake: Lake
) -> None:
    always, stopped = of_the_log("always"), of_the_log("stopped")
    of_results = following("results", counts, "id string, window_end timestamp, readings bigint", "window_end")
    of_alerts = following("alerts", jumps, "id string, jump double", "_origin.at")
    of_cold = following("cold_ones", warm, "id string", "_origin.at", side="cold")
    run(spark, lake, upstream, readings("a@1=20, b@2=5, a@3"))
    for pipeline in (always, stopped):
        run(spark, lake, pipeline)

    # A goes on for ten batches, in which B is stopped; one row of each is refused by a rule of A.
    for numbers in (range(1, 6), range(6, 11)):
        batches = (
            readings(f"a@{10 * number + 1}={20 + number * 3}, b@{10 * number + 2}=5, b@{10 * number + 3}")
            for number in numbers
        )
        run(spark, lake, upstream, *batches, end_of_input=10 in numbers)
        tidied(lake, upstream)
        for pipeline in (always, of_alerts):
            run(spark, lake, pipeline)
    assert len(log.read_batches(lake, source)) == 1 + 10 + 1, "ten batches, between the first and the heartbeat"
    for pipeline in (always, stopped, of_results, of_alerts, of_cold):
        run(spark, lake, pipeline, end_of_input=True)

    rows, results = everything(spark, lake, stopped)
    assert [rows, results] == everything(spark, lake, always)
    upstream_rows = log.valid(log.read_log(spark, lake, source))
    assert len(rows) == upstream_rows.count() == 22, "neither rejected rows nor heartbeats are anybody's rows"
    assert sum(row[-1] for row in results) == 22
    assert len(log.read_batches(lake, stopped.stream)) < len(log.read_batches(lake, always.stream))

    published = tuples(read_first(spark, lake, counts), "id", "window_end", "readings")
    assert [row[:3] for row in everything(spark, lake, of_results)[0]] == published
    assert [row[:2] for row in everything(spark, lake, of_alerts)[0]] == [("a", 3.0)] * 10
    assert [row[:2] for row in everything(spark, lake, of_cold)[0]] == [
        ("b", at(second)) for second in (2, *range(12, 103, 10))
    ]
    for pipeline in (upstream, always, stopped, of_results, of_alerts, of_cold):
        assert broken(spark, lake, pipeline) == []


@pytest.mark.long
def test_what_is_rejected_downstream_has_its_payload_and_comes_back_once_the_rule_is_right(
    spark: SparkSession, lake: Lake
) -> None:
    run(spark, lake, upstream, readings("a@1=20, b@2=5"))
    right = of_the_log("strict")
    strict = replace(right.stream, rules=(Rule("warm", "temperature > 10"),))
    wrong = Pipeline(strict, (replace(right.views[0], of=strict),))
    run(spark, lake, wrong)
    (refused,) = log.rejected(log.read_log(spark, lake, strict)).collect()
    assert bytes(refused["_raw"]) == b'{"id":"b","timestamp":1767225602000,"temperature":5.0,' + (
        b'"event_time":"2026-01-01T00:00:02.000000Z"}'
    )
    repair(spark, lake, right, lambda: NOW)
    assert everything(spark, lake, right)[0] == [("a", at(1), 20.0, at(1), 0, 0), ("b", at(2), 5.0, at(2), 0, 1)]
    assert broken(spark, lake, right) == []


measures = Stream(
    name="measures",
    source=Files("landing/measures"),
    format=Json(
        "id string, at timestamp, m decimal(38, 18), until timestamp, day date, "
        "many array<struct<n: bigint, s: string>>"
    ),
    derived={
        "x": "cast(id as double)",
        "f": "cast(id as float)",
        "nested": "named_struct('a', array(x, null), 'm', map('k', x, 'NaN', null), "
        "'nothing', cast(null as struct<b: double>), 'empty', named_struct('b', cast(null as double)))",
        "local": "cast(until as timestamp_ntz)",
        "content": "cast(id as binary)",
    },
    event_time="at",
    clock=BoundedOutOfOrderness("0 seconds"),
)
NUMBERS = {
    "NaN": "nan",
    "Infinity": "inf",
    "-Infinity": "-inf",
    "-0.0": "-0.0",
    "0.1": "0.1",
    "16777217": "16777217.0",
    "5e-324": "5e-324",
    "1.7976931348623157e308": "1.7976931348623157e+308",
}
HOSTILE = (
    '"m":12345678901234567890.123456789012345678,"until":"0001-01-01T00:00:00.000001Z","day":"9999-12-31","many":[]',
    '"m":-0.000000000000000001,"until":"9999-12-31T23:59:59.999999Z","day":"0001-01-01","many":[null]',
    '"m":0,"until":"1969-12-31T23:59:59.999999Z","many":[{"n":-9223372036854775808,"s":null},{"s":"NaN"},{}]',
    '"many":[{"n":9007199254740993,"s":"\\u0000 \\"ü\\" \\ud83d\\ude00 \\\\ud800\\n"},null]',
)


@pytest.mark.long
def test_every_value_is_handed_on_from_table_to_table_and_from_nobody_else(spark: SparkSession, lake: Lake) -> None:
    lines = [
        f'{{"id":"{number}","at":"2026-01-01T00:00:{place:02}Z",{HOSTILE[place % len(HOSTILE)]}}}'
        for place, number in enumerate(NUMBERS)
    ]
    first = Pipeline(measures, (Windowed("a_day", measures, Tumbling("1 day"), {"rows": agg.count()}),))
    run(spark, lake, first, lines)
    columns = (
        "id string not null, at timestamp, m decimal(38, 18), until timestamp, day date, many array<struct<n: bigint, "
        "s: string>>, x double, f float, nested struct<a: array<double>, m: map<string, double>, "
        "nothing: struct<b: double>, empty: struct<b: double>>, local string, content string"
    )
    copies = replace(
        measures,
        name="copies",
        source=Then(Table(measures), Files("live")),
        format=Json(columns),
        derived={"naive": "cast(local as timestamp_ntz)", "decoded": "unbase64(content)"},
    )
    right = Pipeline(copies, (Windowed("of_copies", copies, Tumbling("1 day"), {"rows": agg.count()}),))
    strict = replace(copies, rules=(Rule("a_number", "not isnan(x)"),))
    land(lake.path("live"), ['{"id":"live","at":"2026-01-01T00:00:20Z","x":"NaN","nested":{"a":["Infinity"]}}'])
    run(spark, lake, Pipeline(strict, (replace(right.views[0], of=strict),)))

    def rejected() -> list[Any]:
        return tuples(log.rejected(log.read_log(spark, lake, copies)), "id", "_rejected")

    of_others = [
        f'type: {path} is not a number within double, got "{word}"'
        for path, word in (("x", "NaN"), ("nested.a[0]", "Infinity"))
    ]
    assert rejected() == [("NaN", ["a_number: not (not isnan(x))"]), ("live", of_others)]
    assert repair(spark, lake, right, lambda: NOW).repaired == 1
    assert rejected() == [("live", of_others)]

    same = ("id", "at", "m", "until", "day", "many", "x", "f", "nested")
    sent = tuples(log.valid(log.read_log(spark, lake, measures)), *same, "local", "content")
    assert {row[0]: repr(row[6]) for row in sent} == NUMBERS
    # A double that is no number is not equal to itself, and two zeros are: their texts tell.
    assert repr(tuples(log.valid(log.read_log(spark, lake, copies)), *same, "naive", "decoded")) == repr(sent)
    for pipeline in (first, right):
        assert broken(spark, lake, pipeline) == []


@pytest.mark.long
def test_a_view_that_was_built_anew_is_refused_by_those_that_follow_it(spark: SparkSession, lake: Lake) -> None:
    chained = following("results", counts, "id string, window_end timestamp, readings bigint", "window_end")
    run(spark, lake, upstream, readings("a@1=20, b@12=5"))
    run(spark, lake, chained)
    rebuild(spark, lake, upstream, counts, now=lambda: NOW)
    with pytest.raises(SourceError, match="was built anew: the log follows its generation 0, and it is at 1"):
        run(spark, lake, chained)


def test_side_outputs_are_followed_by_their_name_only() -> None:
    lake = Lake("/nowhere")
    with pytest.raises(DeclarationError, match="has no such side output"):
        Table(jumps, side="late").location(lake)
    with pytest.raises(DeclarationError, match="no such side output; it has 'cold'"):
        Table(warm, side="hot").location(lake)
    with pytest.raises(DeclarationError, match="a stream has no side outputs"):
        Table(source, side="late").location(lake)
    with pytest.raises(DeclarationError, match="first results can be followed"):
        Table(counts, side="late").location(lake)
