"""The audit holds on an honest lake, and names the law that a damaged one breaks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming import BoundedOutOfOrderness, Pipeline, delta
from streaming.audit import audit
from streaming.corrections import correct, read_corrections
from streaming.examples.late_counts import count_by_sensor, pipeline
from streaming.findings import Finding
from streaming.lake import Lake
from streaming.views import read_first
from tests.support.feeds import readings
from tests.support.instants import NOW, T0
from tests.support.runs import run


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
    delta.append(frame, uri, txn=None, metadata=lambda: {})


def test_audit_holds_on_an_honest_lake_and_names_each_law_that_a_damaged_one_breaks(
    spark: SparkSession, lake: Lake
) -> None:
    batches = [readings("a@1, a@9, a@16"), [*readings("a@8, a@12"), "{oops"], readings("a@26")]
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
        "conservation", "one clock", "idempotence", "partition", "first result", "convergence", "zero native drops",
    }  # fmt: skip
    assert min(finding.checked for finding in after) > 0

    # A file that grows after it was ingested: its new line would never be read.
    landed = sorted(Path(lake.landing(pipeline.stream)).iterdir())
    landed[0].write_bytes(landed[0].read_bytes() + b'{"id": "a", "timestamp": 1}\n')
    assert broken(spark, lake) == {("conservation", "readings")}
    landed[0].unlink()
    assert broken(spark, lake) == set(), "a file may be removed once it is in the log"

    # A first result that nobody computed.
    first = read_first(spark, lake, count_by_sensor).limit(1)
    tampered(first.withColumn("id", F.lit("nobody")), lake.first(count_by_sensor))
    assert broken(spark, lake) == {("first result", "count_by_sensor"), ("convergence", "count_by_sensor")}

    # A correction with a wrong number.
    corrections = read_corrections(spark, lake, count_by_sensor)
    assert corrections is not None
    wrong = corrections.withColumn("readings", F.col("readings") + 1).localCheckpoint()
    delta.replace_days(wrong, lake.corrections(count_by_sensor), [T0.date()], metadata={})
    assert ("idempotence", "count_by_sensor") in broken(spark, lake)
