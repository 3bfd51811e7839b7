"""What Dagster makes of joins: behind both logs, with what came late, corrected by day, judged and reported."""

from __future__ import annotations

from functools import reduce
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import DataFrame, SparkSession

from platform_assets.events.backlog import may_need_corrections, settled_through, waiting
from platform_assets.partitions import days_of
from platform_assets.pipeline.builder import pipeline_definitions
from platform_assets.pipeline.schedules import next_corrections
from platform_assets.reports.publication import read_publication, read_report
from platform_assets.reports.publish import is_up_to_date, judge_and_publish, publish
from platform_assets.reports.report import Report, Section
from platform_assets.reports.sources import Sources
from platform_assets.resources import default_resources
from quality import GateClosed, Suite, pin, unique
from streaming import (
    BoundedOutOfOrderness,
    Files,
    Joined,
    Json,
    Pipeline,
    Selected,
    Stream,
    Tumbling,
    WindowJoined,
    drain,
)
from streaming.lake.lake import Lake
from streaming.operators.runtime import runtime_of
from tests.support.feeds import land_all
from tests.support.instants import NOW, at
from tests.support.runs import tuples

ours, theirs = (
    Stream(
        name,
        Files(f"landing/{name}", files_per_batch=1),
        Json("k string, at timestamp not null, v string"),
        "at",
        BoundedOutOfOrderness("1 second", max_ahead="3650 days"),
    )
    for name in ("ours", "theirs")
)
VALUES = {"a": "left_v", "b": "right_v"}
joined = WindowJoined("joined", ours, theirs, ("k",), Tumbling("5 seconds"), VALUES)
near = Joined("near", ours, theirs, ("k",), ("-5 seconds", "5 seconds"), "left", VALUES, late="drop")
second = Selected("second", ours, {"a": "v", "b": "cast(null as string)"}, where="v = 'a2'")
meeting = Pipeline(name="meeting", streams=(ours, theirs), operators=(joined, near, second))


def met(sources: Sources) -> DataFrame:
    rows = [sources.current(each).selectExpr(f"'{each.name}' of", "a", "b") for each in meeting.operators]
    return reduce(DataFrame.union, rows).orderBy("of", "a")


def met_suite(sources: Sources) -> Suite:
    return Suite((unique("unique_pair", ("of", "a", "b")),))


report = Report(meeting, "Who met whom.", (Section("met", "Per pair.", met, met_suite),))


def row(seconds: float, value: str) -> dict[str, Any]:
    return {"k": "k", "at": at(seconds).isoformat(), "v": value}


def told(instance: dg.DagsterInstance, table: str) -> dict[str, Any]:
    """What the newest event of a table said."""
    event = instance.get_latest_materialization_event(dg.AssetKey(["ours", table]))
    assert event is not None and event.asset_materialization is not None
    return {name: value.value for name, value in event.asset_materialization.metadata.items()}


@pytest.mark.long
def test_joins_are_behind_both_logs_corrected_by_day_and_reported_once_nothing_late_waits(
    spark: SparkSession, lake: Lake
) -> None:
    """```
    ours    k@1=a1 ... k@30=a30 | k@2=a2
    theirs  k@3=b3 ............ k@40=b40
    ```
    """
    definitions = dg.Definitions.merge(
        pipeline_definitions(meeting, [report]),
        dg.Definitions(resources=default_resources(lake.root), executor=dg.in_process_executor),
    )
    graph = definitions.resolve_asset_graph()
    first, corrections, current, late = (
        dg.AssetKey(["ours", f"joined{suffix}"]) for suffix in ("", "_corrections", "_current", "_late")
    )
    logs = {dg.AssetKey(["ours", "log"]), dg.AssetKey(["theirs", "log"])}
    near_late = dg.AssetKey(["ours", "near_late"])
    assert [graph.get(key).parent_keys for key in (first, late, near_late)] == [logs] * 3
    assert graph.get(corrections).parent_keys == logs | {late}
    assert graph.get(corrections).partitions_def == days_of(joined)
    assert graph.get(current).parent_keys == {first, corrections}
    assert {current, dg.AssetKey(["ours", "near_current"])} <= graph.get(dg.AssetKey(["reports", "met"])).parent_keys
    checks = {key.name for key in graph.asset_check_keys if key.asset_key == dg.AssetKey(["ours", "near"])}
    assert checks == {"unique_pair", "within_bounds", "day_of_time"}

    land_all(lake, ours, [row(1, "a1")], [row(30, "a30")], [row(2, "a2")])
    land_all(lake, theirs, [row(3, "b3")], [row(40, "b40")])
    with dg.DagsterInstance.ephemeral() as instance:

        def run(job: str) -> dg.ExecuteInProcessResult:
            return definitions.resolve_job_def(job).execute_in_process(instance=instance)

        assert not may_need_corrections(instance, lake, joined)
        assert run("meeting_drain").success
        day = at(0).date().isoformat()
        assert (told(instance, "joined_late")["dagster/row_count"], told(instance, "near_late")["late_policy"]) == (
            1,
            "drop",
        )
        assert f"| {day} left | 1 |" in told(instance, "joined_late")["late_rows"]
        assert instance.get_dynamic_partitions(days_of(joined).name or "") == [day]
        # The clocks are at 0:29 and 0:39, so the row at 0:30 may still find a partner.
        for table, rows in (("near", 1), ("joined", 0)):
            position = {"waiting_rows": rows, "watermark_skew_seconds": 10.0, "behind": "ours"}
            assert position.items() <= told(instance, table).items()
        assert told(instance, "joined")["watermark"] == at(29).timestamp()

        waits = f"{day} has 1 late rows in joined.*`tidemark correct meeting --day {day}`"
        with pytest.raises(GateClosed, match=waits):
            judge_and_publish(spark, lake, report, "too early")
        assert isinstance(next_corrections(instance, lake, meeting), dg.RunRequest)
        assert waiting(instance, lake, joined) is not None
        assert run("meeting_corrections").success
        (corrected,) = instance.fetch_materializations(corrections, limit=2).records
        assert corrected.partition_key == day
        assert waiting(instance, lake, joined) is None
        assert not may_need_corrections(instance, lake, joined)
        assert settled_through(instance, meeting) == {"ours": 2, "theirs": 1}
        assert run("met").success
    pairs = runtime_of(joined, lake).readable["current"](spark)
    assert tuples(pairs, "a", "b", "_corrected") == [("a1", "b3", True), ("a2", "b3", True)]
    published, sections = read_publication(lake, "met"), read_report(lake, "met")
    assert published is not None and sections is not None
    assert [tuple(each.values()) for each in sections["met"].to_pylist()] == [
        ("joined", "a1", "b3"),
        ("joined", "a2", "b3"),
        ("near", "a1", "b3"),
        ("second", "a2", None),
    ]
    assert published.footnotes == ("near: 1 late rows are not counted, as declared with late='drop'.",)

    # Nothing is new for the window join, and the pins are those of one moment: what follows is for the next report.
    assert is_up_to_date(lake, report, pin(lake, meeting))
    land_all(lake, theirs, [row(31, "b31")])
    drain(spark, lake, meeting, now=lambda: NOW)
    assert not is_up_to_date(lake, report, pin(lake, meeting))
    with pytest.raises(GateClosed, match="stale"):
        publish(spark, lake, report, pin(lake, meeting), "not judged")
