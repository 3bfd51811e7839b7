"""`explain` says the way that a view is computed, by what it was chosen, and how far the view is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from docs.examples.late_counts import count_by_sensor
from docs.examples.late_counts import readings as stream
from streaming import agg
from streaming.base.errors import LogError
from streaming.declare.pipeline import Pipeline
from streaming.lake.lake import Lake
from streaming.operators.runtime import runtime_of
from streaming.windows.session import SessionWindow
from streaming.windows.window import Sliding, Tumbling
from tests.support.feeds import readings
from tests.support.runs import run

sliding = replace(count_by_sensor, name="sliding", window=Sliding("10 seconds", "5 seconds"), every="1 minute")
middle = replace(count_by_sensor, name="middle", aggregates={"middle": agg.median("timestamp")}, late="drop")
sessions = replace(count_by_sensor, name="sessions", window=SessionWindow("10 seconds"))
once = replace(sessions, name="once", distinct=("id",), late="correct")
often = replace(sliding, name="often", window=Sliding("10 seconds", "2 seconds"))
VIEWS = (count_by_sensor, sliding, often, middle, sessions, once)
FIRST, SECOND = readings("a@1, b@2, a@12"), readings("a@25, b@26")


@pytest.fixture
def explained(spark: SparkSession, lake: Lake) -> dict[str, dict[str, str]]:
    run(spark, lake, Pipeline(stream, VIEWS), FIRST, SECOND)
    return {view.name: dict(runtime_of(view, lake).explain(spark)) for view in VIEWS}


def test_the_way_is_told_with_what_it_was_chosen_by(explained: dict[str, dict[str, str]]) -> None:
    # The watermark is at 21 s: the rows of the second batch wait.
    assert (
        "2 reads of rows wait for it now, each row in one window, and from 1,000,000 on"
        in (explained["count_by_sensor"]["computed"])
    )
    assert "4 reads of rows wait for it now, each row in at most 2 windows" in explained["sliding"]["computed"]
    assert "by pane" not in explained["sliding"]["computed"]
    assert "are read from the log and put together by pane" in explained["often"]["computed"]
    assert "up to 500,000 of them are counted by Arrow at once" in explained["often"]["computed"]
    assert "by Arrow" not in explained["middle"]["computed"]
    assert "cannot be folded on the way, because middle cannot be put together" in explained["middle"]["computed"]
    assert "in a table, with the parts of their aggregates" in explained["sessions"]["computed"]
    assert "with their rows, because rows that agree in id count once" in explained["once"]["computed"]


@pytest.mark.long
def test_position_state_and_what_becomes_of_late_rows_are_told(explained: dict[str, dict[str, str]]) -> None:
    assert explained["sliding"]["steps"] == "at most every 1 minute"
    assert explained["sliding"]["state"] == "none"
    assert "bytes in sessions_state" in explained["sessions"]["state"]
    assert explained["sessions"]["position"].startswith("batch 1 of 1, watermark ")
    assert explained["sessions"]["results"].startswith("readings per id and window, SessionWindow(")
    assert explained["middle"]["late rows"] == "are dropped from the results; they stay in the log"
    assert explained["once"]["late rows"] == "they wait for the correction of their day"


def test_rows_that_were_folded_are_told(spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming.views.steps.FOLDED_FROM", 1)
    run(spark, lake, Pipeline(stream, (count_by_sensor,)), FIRST, SECOND)
    assert runtime_of(count_by_sensor, lake).explain(spark)["computed"] == (
        "rows up to batch 1 are folded into panes of partial aggregates; 0 reads of rows wait for it now, each row in "
        "one window"
    )


@pytest.mark.long
def test_rows_that_an_earlier_process_has_left_waiting_count_when_it_is_decided_whether_to_fold(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six reads of rows are folded: each of these three processes brings two, of a window that stays open."""
    monkeypatch.setattr("streaming.views.steps.FOLDED_FROM", 6)
    monkeypatch.setattr("streaming.views.operator.FOLDED_FROM", 6)
    daily = replace(count_by_sensor, window=Tumbling("1 day"))
    explanations = []
    for rows in ("a@1, b@2", "a@100, b@101", "a@200, b@201"):
        run(spark, lake, Pipeline(stream, (daily,)), readings(rows))
        explanations.append(runtime_of(daily, lake).explain(spark)["computed"])
    assert "; 2 reads of rows wait for it now, each row in one window, and from 6 on they are folded" in explanations[0]
    assert "; 4 reads of rows wait for it now, each row in one window, and from 6 on they are folded" in explanations[1]
    assert explanations[2].startswith("rows up to batch 2 are folded into panes of partial aggregates; 0 reads")


def test_nothing_is_explained_before_anything_was_ingested(spark: SparkSession, lake: Lake) -> None:
    with pytest.raises(LogError, match="has no event log"):
        runtime_of(count_by_sensor, lake).explain(spark)
