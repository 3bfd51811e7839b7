"""A late row in time may leave a window without any result: what was published of it is void from then on."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from docs.examples.allowed_lateness import updated_bursts, updated_counts, updated_readings
from streaming import Lake, Pipeline, Windowed, WindowFunction
from streaming.audit.laws import audit
from streaming.views.results import read_first
from streaming.views.updates import read_updates
from tests.support.feeds import readings
from tests.support.runs import read_current, run, tuples


def pairs_only(rows: pd.DataFrame) -> pd.DataFrame:
    """A result of windows of two rows alone."""
    return pd.DataFrame({"readings": [2] if len(rows) == 2 else []})


FUNCTION = WindowFunction(pairs_only, "readings bigint")
COUNTS = replace(updated_counts, name="counts", aggregates={}, function=FUNCTION)
BURSTS = replace(updated_bursts, name="bursts", aggregates={}, function=FUNCTION)
PIPELINE = Pipeline(updated_readings, (COUNTS, BURSTS))


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(str(tmp_path_factory.mktemp("retracting") / "lake"))
    # Watermark 14: the windows until 10 and the bursts until 12 are closed, and updated for five seconds.
    run(spark, lake, PIPELINE, readings("a@1, a@2, b@2, clock@14"), readings("a@1.5, b@3"), end_of_input=True)
    return lake


@pytest.mark.parametrize("view", [COUNTS, BURSTS], ids=lambda view: view.name)
def test_a_result_that_a_late_row_takes_away_is_gone_at_once(spark: SparkSession, lake: Lake, view: Windowed) -> None:
    assert tuples(read_first(spark, lake, view), "id", "readings") == [("a", 2)]
    updates = read_updates(spark, lake, view)
    assert updates is not None
    assert tuples(updates, "id", "readings", "_retracted") == [("a", None, True), ("b", 2, False)]
    assert tuples(read_current(spark, lake, view), "id", "readings") == [("b", 2)]


@pytest.mark.long
def test_the_audit_holds_on_results_that_were_taken_away(spark: SparkSession, lake: Lake) -> None:
    findings = list(audit(spark, lake, PIPELINE))
    assert [finding for finding in findings if not finding.holds] == []
