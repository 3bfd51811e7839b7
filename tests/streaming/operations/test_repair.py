"""Rejected rows come back exactly once, as late as they are; a column added to the format comes into the log."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from streaming import (
    BoundedOutOfOrderness,
    Files,
    Json,
    Lake,
    Pipeline,
    Rule,
    SessionWindow,
    Stream,
    Tumbling,
    Windowed,
    WindowFunction,
    agg,
    correct,
)
from streaming.audit.laws import audit
from streaming.base.errors import LogError
from streaming.log.batches import head, read_batches
from streaming.log.ingest import next_state
from streaming.log.read import read_log, rejected
from streaming.operations.repair import preview, repair
from streaming.operators import ChangedWindow
from streaming.tables import delta
from streaming.views.results import read_first
from tests.support.instants import NOW, T0, at
from tests.support.runs import read_current, run, tuples
from tidemark.testing import Payload

LATER = NOW + timedelta(hours=1)

_STRICT_STREAM = Stream(
    name="sensors",
    source=Files("landing/sensors"),
    format=Json("id string, at timestamp, value bigint"),
    event_time="at",
    clock=BoundedOutOfOrderness("5 seconds"),
    rules=(Rule("value_present", "value is not null"),),
)


def pipeline_of(stream: Stream) -> Pipeline:
    view = Windowed(
        "by_id", stream, Tumbling("10 seconds"), {"readings": agg.count(), "sum": agg.sum("value")}, by=("id",)
    )
    return Pipeline(stream, (view,))


STRICT = pipeline_of(_STRICT_STREAM)
# The rule is gone, and the senders may add a note now.
LAX = pipeline_of(replace(_STRICT_STREAM, rules=(), format=Json("id string, at timestamp, value bigint, note string")))
VIEW = LAX.view()
SESSIONS = replace(VIEW, name="sessions", window=SessionWindow("5 seconds"), aggregates={"readings": agg.count()})


def reading(id_: str | None, seconds: float, value: int | None, **more: str) -> dict[str, Any]:
    return {"id": id_, "at": at(seconds).isoformat(), "value": value, **more}


@pytest.fixture
def rejecting(spark: SparkSession, lake: Lake) -> Lake:
    """A lake with four rejected rows, of which the lax declaration accepts three: two are late, one is not."""
    first: list[Payload] = [reading("a", 1, 1), reading("b", 2, None), reading("b", 3, 4), "not JSON"]
    run(spark, lake, STRICT, first, [reading("a", 17, 2), reading(None, 3.5, None), reading("a", 18, None)])  # wm 12
    return lake


def test_rows_that_pass_by_now_come_back_once_with_todays_stamp_and_the_preview_foretells_it(
    spark: SparkSession, rejecting: Lake
) -> None:
    lake = rejecting
    log, before = lake.log(LAX.stream), head(lake, LAX.stream)
    assert before is not None
    version = delta.version_of(log)

    foretold = preview(spark, lake, Pipeline(LAX.stream, (VIEW, SESSIONS)), lambda: LATER)
    assert (foretold.examined, foretold.repaired) == (4, 3)
    ends = {"b": {"readings": 1, "sum": 4}, "a": {"readings": 1, "sum": 2}}
    assert foretold.changes["by_id"] == (
        ChangedWindow((None,), at(0), at(10), 1, None, {"readings": 1, "sum": None}),
        ChangedWindow(("b",), at(0), at(10), 1, ends["b"], {"readings": 2, "sum": 4}),
        ChangedWindow(("a",), at(10), at(20), 1, ends["a"], {"readings": 2, "sum": 2}),
    )
    one, two = {"readings": 1}, {"readings": 2}
    assert foretold.changes["sessions"] == (
        ChangedWindow(("b",), at(2), at(8), 1, None, two),
        ChangedWindow(("b",), at(3), at(8), 0, one, None),
        ChangedWindow((None,), at(3.5), at(8.5), 1, None, one),
        ChangedWindow(("a",), at(17), at(22), 0, one, None),
        ChangedWindow(("a",), at(17), at(23), 1, None, two),
    )
    assert delta.version_of(log) == version, "a preview writes nothing"

    # The type of a column cannot change under the log: the sentence says so, and nothing is written.
    other = pipeline_of(replace(LAX.stream, format=Json("id string, at timestamp, value double")))
    with pytest.raises(LogError, match=r"has the column 'value bigint', .* has 'value double'.*beside it as 'new_"):
        repair(spark, lake, other, lambda: LATER)
    assert delta.version_of(log) == version

    done = repair(spark, lake, LAX, lambda: LATER)
    assert (done.examined, done.repaired, done.still_rejected) == (4, 3, 1)
    (batch,) = done.batches.values()
    assert head(lake, LAX.stream) == batch
    assert (batch.cause, batch.number, batch.state) == ("repair", before.number + 1, next_state(before))
    assert (batch.summary.rows, batch.summary.greatest, batch.late) == (3, {"": at(18)}, {"by_id": 2})
    rows = read_log(spark, lake, LAX.stream)
    assert tuples(rows.where(f"_batch = {batch.number}"), "id", "_watermark", "_ingested_at", "_origin.repairs") == [
        (None, at(12), LATER, 1),
        ("a", at(12), LATER, 1),
        ("b", at(12), LATER, 0),
    ]
    assert [bytes(raw) for (raw,) in rejected(rows).select("_raw").collect()] == [b"not JSON"]

    again = repair(spark, lake, LAX, lambda: LATER)
    assert (again.examined, again.repaired, again.batches) == (1, 0, {})
    assert head(lake, LAX.stream) == batch


def _by_value(rows: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"ids": [{str(id_): value} for id_, value in zip(rows["id"], rows["value"], strict=True)]})


@pytest.mark.long
def test_a_preview_tells_of_results_that_are_maps(spark: SparkSession, rejecting: Lake) -> None:
    maps = WindowFunction(_by_value, "ids map<string, bigint>")
    view = Windowed("maps", LAX.stream, Tumbling("10 seconds"), {}, by=("id",), function=maps)
    changes = preview(spark, rejecting, Pipeline(LAX.stream, (view,)), lambda: LATER).changes["maps"]
    assert [(change.key, change.rows_added) for change in changes] == [((None,), 1), (("b",), 1), (("a",), 1)]
    assert changes[1].before == {"ids": [[("b", 4)]]} and changes[1].after == {"ids": [[("b", None)], [("b", 4)]]}


@pytest.mark.long
def test_d8_repaired_rows_and_an_added_column_take_the_ordinary_road_through_views_and_corrections(
    spark: SparkSession, rejecting: Lake
) -> None:
    lake = rejecting
    repair(spark, lake, LAX, lambda: LATER)
    run(spark, lake, LAX, [reading("a", 26, 3, note="new")], end_of_input=True)

    rows = read_log(spark, lake, LAX.stream)
    assert tuples(rows.where("_day is not null"), "at", "note")[-2:] == [(at(18), None), (at(26), "new")]
    # The repair of a@18 came before its window was closed: it is in the first result.
    results = ("id", "window_end", "readings")
    assert tuples(read_first(spark, lake, VIEW), *results) == [
        ("a", at(10), 1),
        ("a", at(20), 2),
        ("a", at(30), 1),
        ("b", at(10), 1),
    ]
    assert correct(spark, lake, VIEW, [T0.date()], lambda: LATER) == {T0.date(): 2}
    assert tuples(read_current(spark, lake, VIEW), *results) == [
        (None, at(10), 1),
        ("a", at(10), 1),
        ("a", at(20), 2),
        ("a", at(30), 1),
        ("b", at(10), 2),
    ]
    assert [batch.cause for batch in read_batches(lake, LAX.stream)[::-1]] == [
        "source", "source", "repair", "source", "heartbeat",
    ]  # fmt: skip
    findings = list(audit(spark, lake, LAX))
    assert [finding for finding in findings if not finding.holds] == []
    (repairs,) = (finding for finding in findings if finding.compared.startswith("repairs"))
    assert repairs.checked == 3

    # The same row repaired a second time.
    delta.append(rows.where("_origin.repairs = 0"), lake.log(LAX.stream), says={})
    (repairs,) = (finding for finding in audit(spark, lake, LAX) if finding.compared.startswith("repairs"))
    assert (repairs.law, repairs.broken) == ("conservation", 1)


def test_a_row_is_judged_by_when_it_came_however_long_after_it_is_repaired(spark: SparkSession, lake: Lake) -> None:
    patient = BoundedOutOfOrderness("5 seconds", max_ahead="1 hour", max_behind="1 day")
    strict, lax = (
        pipeline_of(replace(STRICT.stream, clock=patient, rules=rules)) for rules in (STRICT.stream.rules, ())
    )
    came = {hours: {"id": str(hours), "at": (NOW + timedelta(hours=hours)).isoformat()} for hours in (-23, -25, 0, 2)}
    run(spark, lake, strict, came.values())

    done = repair(spark, lake, lax, lambda: NOW + timedelta(days=30))

    assert (done.examined, done.repaired) == (4, 2)
    (batch,) = done.batches.values()
    assert batch.state.watermark is None, "no valid row came before it"
    rows = read_log(spark, lake, lax.stream).where(f"_batch = {batch.number}")
    assert tuples(rows, "id", "_watermark", "_ingested_at") == [
        ("-23", None, NOW + timedelta(days=30)),
        ("0", None, NOW + timedelta(days=30)),
    ]
