"""`tidemark rebuild`, `tidemark drop` and what `tidemark status` says of tables that were left."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from platform_assets.demo.pipelines import flights as declared

# The report names the pipeline as it is when this module is imported, and a test here declares another one meanwhile.
from platform_assets.demo.reports import on_time_performance  # noqa: F401
from platform_assets.demo.suites import flights as suite
from platform_assets.reports.publication import read_publication
from quality import always
from streaming.lake.lake import Lake
from streaming.service.drain import drain
from streaming.windows.window import Tumbling
from tests.platform_assets.conftest import Tidemark
from tests.support.departures import CLOSING, FIRST, LATE_ON_1
from tests.support.feeds import land_all


@pytest.mark.long
def test_a_changed_view_is_refused_rebuilt_and_once_renamed_dropped(
    spark: SparkSession, lake: Lake, tidemark: Tidemark, monkeypatch: pytest.MonkeyPatch
) -> None:
    land_all(lake, declared.flights, FIRST, CLOSING, LATE_ON_1)
    drain(spark, lake, declared.pipeline, end_of_input=True)

    halves = replace(declared.departures_by_origin, window=Tumbling("30 minutes"))
    monkeypatch.setattr(declared, "pipeline", replace(declared.pipeline, operators=(halves,)))
    code, text = tidemark("run flights")
    assert code == 1 and "window was Tumbling(size=1:00:00" in text and "tidemark rebuild departures_by_origin" in text
    code, text = tidemark("rebuild departures_by_origin")
    assert code == 0 and "results built from the log" in text and "2013-01-01: 1 window corrected" in text
    assert tidemark("run flights")[0] == 0
    code, text = tidemark("rebuild nonesuch")
    assert code == 1 and "there is no view 'nonesuch': flights/departures_by_origin" in text

    monkeypatch.setattr(
        declared, "pipeline", replace(declared.pipeline, operators=(replace(halves, name="by_origin"),))
    )
    code, text = tidemark("status")
    assert code == 0 and "belongs to view 'departures_by_origin', which is not declared" in text
    code, text = tidemark("drop departures_by_origin --yes")
    assert code == 0 and text.count("removed ") == 4
    assert not Path(lake.first(declared.departures_by_origin)).exists() and Path(lake.log(declared.flights)).exists()
    assert "not declared" not in tidemark("status")[1]


@pytest.mark.long
def test_a_report_that_was_published_is_published_again_from_the_view_that_was_built_anew(
    spark: SparkSession, lake: Lake, tidemark: Tidemark, monkeypatch: pytest.MonkeyPatch
) -> None:
    land_all(lake, declared.flights, FIRST, CLOSING, LATE_ON_1)
    drain(spark, lake, declared.pipeline, end_of_input=True)
    assert "report" not in tidemark("rebuild departures_by_origin")[1], "nobody has asked for one"

    assert tidemark("report on_time_performance")[0] == 0
    before = read_publication(lake, "on_time_performance")
    code, text = tidemark("rebuild departures_by_origin")
    assert code == 0 and "report on_time_performance is published again" in text
    after = read_publication(lake, "on_time_performance")
    assert before is not None and after is not None and after.run_id != before.run_id

    # A gate that is closed keeps the report back, and takes nothing of the rebuild back.
    refused = always("no_row_at_all", "false", "there is nothing")
    monkeypatch.setattr(suite, "expectations", {"log": (refused,)})
    code, text = tidemark("rebuild departures_by_origin")
    assert code == 0 and "report on_time_performance stays as it was, for its gate is closed: " in text
    assert "'no_row_at_all' on flights/log" in text and "Nothing was" not in text
    assert read_publication(lake, "on_time_performance") == after
