"""The audit holds on an honest lake, and names the law that a damaged one breaks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from docs.examples.late_counts import count_by_sensor, pipeline
from streaming import (
    BoundedOutOfOrderness,
    Files,
    Json,
    Pipeline,
    Stream,
    Tumbling,
    Windowed,
    WindowFunction,
    agg,
)
from streaming.audit.laws import audit
from streaming.lake.lake import Lake
from streaming.operators import Finding
from streaming.service.observer import Observer
from streaming.service.query_errors import await_queries
from streaming.service.run import Run
from streaming.tables import delta
from streaming.views.corrections import correct, read_corrections
from streaming.views.results import read_first
from tests.support.feeds import land_all, readings
from tests.support.instants import NOW, T0, at
from tests.support.runs import run
from tidemark.testing import Payload


def broken(spark: SparkSession, lake: Lake) -> set[tuple[str, str]]:
    """Law and subject of every finding that does not hold."""
    return {(finding.law, finding.subject) for finding in findings(spark, lake) if not finding.holds}


def findings(spark: SparkSession, lake: Lake) -> list[Finding]:
    """All findings of the audit."""
    return list(audit(spark, lake, pipeline))


def with_delay(delay: str) -> Pipeline:
    """The same pipeline with another delay of its clock."""
    stream = replace(pipeline.stream, clock=BoundedOutOfOrderness(delay))
    return Pipeline(stream, tuple(replace(view, of=stream) for view in pipeline.views))


def tampered(frame: DataFrame, uri: str) -> None:
    """Rows that came past the engine."""
    delta.append(frame, uri, says={})


def delete_where(spark: SparkSession, uri: str, condition: Column) -> None:
    """Rows that went missing past the engine."""
    table = DeltaTable.forPath(spark, uri)
    spark.sql(f"alter table delta.`{uri}` set tblproperties ('delta.appendOnly' = 'false')")
    table.delete(condition)


def test_audit_holds_on_an_honest_lake_and_names_each_law_that_a_damaged_one_breaks(
    spark: SparkSession, lake: Lake
) -> None:
    batches: list[list[Payload]] = [
        [*readings("a@1, a@9, a@16")],
        [*readings("a@8, a@12"), "{oops"],
        [*readings("a@26")],
    ]
    run(spark, lake, pipeline, *batches[:2])
    # A delay that is changed later judges later batches only: those before keep their stamps.
    run(spark, lake, with_delay("6 seconds"), *batches[2:], end_of_input=True)

    before = {finding.law: finding for finding in findings(spark, lake)}
    assert all(finding.holds for finding in before.values())
    assert "1 days wait" in before["convergence"].compared

    correct(spark, lake, count_by_sensor, [T0.date()], lambda: NOW)
    after = findings(spark, lake)
    assert all(finding.holds for finding in after)
    assert {finding.law for finding in after} == {
        "conservation", "one clock", "idempotence", "partition", "first result", "convergence", "published"
    }  # fmt: skip
    assert min(finding.checked for finding in after) > 0

    # A file that grows after it was ingested: its new line would never be read.
    landed = sorted(Path(pipeline.stream.source.location(lake)).iterdir())
    landed[0].write_bytes(landed[0].read_bytes() + b'{"id": "a", "timestamp": 1}\n')
    assert broken(spark, lake) == {("conservation", "readings")}
    landed[0].unlink()
    assert broken(spark, lake) == set(), "a file may be removed once it is in the log"

    # A first result that nobody computed.
    first = read_first(spark, lake, count_by_sensor).limit(1)
    tampered(first.withColumn("id", F.lit("nobody")), lake.first(count_by_sensor))
    assert broken(spark, lake) == {(law, "count_by_sensor") for law in ("first result", "convergence", "published")}

    # A correction with a wrong number.
    corrections = read_corrections(spark, lake, count_by_sensor)
    assert corrections is not None
    wrong = corrections.withColumn("readings", F.col("readings") + 1).localCheckpoint()
    delta.replace_days(wrong, lake.corrections(count_by_sensor), [T0.date()], says={})
    assert ("idempotence", "count_by_sensor") in broken(spark, lake)


@pytest.mark.long
def test_windows_that_never_closed_and_a_batch_that_the_log_lost_are_told_of(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, pipeline, readings("a@1, a@16"), readings("a@26"), readings("a@36"))
    assert broken(spark, lake) == set()

    # A window is missing that the view says it has published.
    newest = read_first(spark, lake, count_by_sensor).agg(F.max("window_end")).collect()[0][0]
    delete_where(spark, lake.first(count_by_sensor), F.col("window_end") == newest)
    assert broken(spark, lake) == {(law, "count_by_sensor") for law in ("first result", "convergence", "published")}

    delete_where(spark, lake.log(pipeline.stream), F.col("_batch") == 2)
    assert ("conservation", "readings") in broken(spark, lake)


@pytest.mark.long
def test_a_stream_that_goes_on_during_the_audit_breaks_no_law_of_it(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, pipeline, readings("a@1, a@9, a@16"), readings("a@8, a@26"))
    correct(spark, lake, count_by_sensor, [T0.date()], lambda: NOW)
    run(spark, lake, pipeline, readings("a@7"))

    laws = audit(spark, lake, pipeline)
    all_findings = [next(laws)]
    # From here on the lake has another batch, late rows, windows more, and the correction of them all.
    run(spark, lake, pipeline, readings("a@2, b@36"), readings("a@46"))
    correct(spark, lake, count_by_sensor, [T0.date()], lambda: NOW)
    all_findings += laws

    assert [finding for finding in all_findings if not finding.holds] == []
    (convergence,) = (finding for finding in all_findings if finding.law == "convergence" and not finding.independent)
    assert "1 days wait" in convergence.compared, "the correction that waited when the audit began"
    assert [finding for finding in findings(spark, lake) if not finding.holds] == []


@pytest.mark.long
def test_windows_that_are_closed_and_not_yet_published_break_no_law(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, pipeline, readings("a@1, a@16"), readings("a@26"))
    # Ended after its ingestion, a process leaves a view behind the log; corrections go by the log.
    land_all(lake, pipeline.stream, readings("a@3, a@46"), readings("a@56"), readings("a@32"))
    ingest = Run(spark, lake, pipeline, Observer(lambda: NOW)).start_ingest(availableNow=True)
    await_queries(list(ingest.values()))
    correct(spark, lake, count_by_sensor, [T0.date()], lambda: NOW)

    behind = findings(spark, lake)
    assert [finding for finding in behind if not finding.holds] == []
    (first,) = (finding for finding in behind if finding.law == "first result" and not finding.independent)
    assert "the view is at " in first.compared

    run(spark, lake, pipeline)
    caught_up = findings(spark, lake)
    assert [finding for finding in caught_up if not finding.holds] == []
    (after,) = (finding for finding in caught_up if finding.law == "first result" and not finding.independent)
    assert "the view is at " not in after.compared
    assert after.checked > first.checked


def _tags_of(rows: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({"of_row": rows["tags"]})


@pytest.mark.long
def test_results_with_maps_are_compared_and_a_damaged_one_is_found(spark: SparkSession, lake: Lake) -> None:
    tagged = Stream(
        "tagged",
        Files("landing/tagged"),
        Json("id string, at timestamp not null, tags map<string, array<bigint>>"),
        "at",
        BoundedOutOfOrderness("0 seconds", max_ahead="30 days"),
    )
    first = Windowed("first", tagged, Tumbling("10 seconds"), {"tags": agg.first("tags")}, by=("id",))
    of_row = WindowFunction(_tags_of, "of_row map<string, array<bigint>>")
    each = Windowed("each", tagged, Tumbling("10 seconds"), {}, by=("id",), function=of_row)
    declared = Pipeline(tagged, (first, each))
    tags = [{"b": [1], "a": [2]}, {"a": [2, 3]}, {}, None]
    run(spark, lake, declared, [{"id": "k", "at": at(2).isoformat(), "tags": value} for value in tags])
    run(spark, lake, declared, [{"id": "k", "at": at(60).isoformat(), "tags": None}])
    assert [finding for finding in audit(spark, lake, declared) if not finding.holds] == []

    stored = read_first(spark, lake, first)
    wrong = stored.withColumn("tags", F.expr("transform_values(tags, (tag, n) -> slice(n, 1, 0))"))
    delete_where(spark, lake.first(first), F.lit(True))
    tampered(wrong.localCheckpoint(), lake.first(first))
    broken_laws = {(each.law, each.subject) for each in audit(spark, lake, declared) if not each.holds}
    assert ("first result", "first") in broken_laws and all(subject == "first" for _, subject in broken_laws)
