"""Killed wherever it may be, an erasure is finished by the next one, and its record knows all that was removed."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streaming import Lake, drain
from streaming.audit.laws import audit
from streaming.operations.erasure.proof import prove
from streaming.operations.erasure.record import Removed, erasures
from streaming.operations.maintenance import maintain
from streaming.operators.runtime import runtime_of
from tests.support.crash import crash
from tests.support.erasure_crash import ADA, POINTS, erase_ada, orders, payments, pipeline
from tests.support.feeds import land
from tests.support.instants import NOW, at
from tests.support.runs import tuples

pytestmark = pytest.mark.processes

ORDERS = (("ada", 1, 10), ("bob", 2, 20), ("ada", 12, 30), ("eve", 25, 40), ("bob", 41, 50))
PAYMENTS = (("ada", 3, 10), ("bob", 4, 20), ("ada", 22, 30), ("eve", 26, 40), ("eve", 60, 1))


def fed(spark: SparkSession, lake: Lake, *, without: str = "") -> None:
    for stream, rows in ((orders, ORDERS), (payments, PAYMENTS)):
        named = [dict(zip(("customer", "amount"), (row[0], row[2]), strict=True)) for row in rows]
        times = [{stream.event_time: at(seconds).isoformat()} for _, seconds, _ in rows]
        payloads = [name | time for name, time in zip(named, times, strict=True) if name["customer"] != without]
        # Two batches, so that there is something to compact.
        for part in (payloads[:2], payloads[2:]):
            land(stream.source.location(lake), part)
    drain(spark, lake, pipeline, end_of_input=True, now=lambda: NOW)
    # Compaction bounds columns of all types, and of decimals JSON has none.
    maintain(lake, pipeline)


def results(spark: SparkSession, lake: Lake) -> dict[str, list[tuple[object, ...]]]:
    """What is current of each operator, by the columns that users see."""
    frames = {each.name: runtime_of(each, lake).readable["current"](spark) for each in pipeline.operators}
    return {
        name: tuples(frame, *(column for column in frame.columns if not column.startswith("_")))
        for name, frame in frames.items()
    }


@pytest.mark.long
def test_an_erasure_over_two_streams_and_their_joins_that_was_killed_is_finished_and_forgets_nothing_it_removed(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake, never = Lake(str(tmp_path / "lake")), Lake(str(tmp_path / "never"))
    fed(spark, lake)
    for point in POINTS:
        died = crash(tmp_path, point, "tests.support.erasure_crash", lent=spark)
        assert died.returncode == -signal.SIGKILL, f"{point}: {died.stdout}"
    done = erase_ada(spark, lake)

    (record,) = erasures(lake)
    assert record == done.erasure and record.done_at == NOW and record.under_way is None
    assert {name: record.tables[f"{name}/log"] for name in ("orders", "payments")} == dict.fromkeys(
        ("orders", "payments"), Removed(rows=2, rewritten=1, vacuumed=3)
    )
    assert done.rebuilt == ("tens", "settled", "together")
    assert prove(lake, pipeline, ADA).places == ()
    assert [str(finding) for finding in audit(spark, lake, pipeline) if not finding.holds] == []
    fed(spark, never, without="ada")
    assert results(spark, lake) == results(spark, never)
