"""What one reads as of a batch is what a lake that had stopped there shows."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from streaming import agg
from streaming.audit.laws import audit
from streaming.base.errors import LeaseError, LogError, OperatorError, SavepointError
from streaming.base.intervals import utc_now
from streaming.declare.operator import Operator
from streaming.declare.pipeline import Pipeline
from streaming.declare.selected import Selected
from streaming.declare.windowed import Windowed
from streaming.lake.lake import Lake
from streaming.log.read import read_log
from streaming.operations.cuts import forget_recomputed, lake_as_of, recomputed
from streaming.operations.savepoint import savepoint
from streaming.operators.runtime import clean_state, runtime_of
from streaming.service.drain import drain
from streaming.service.lease import take_lease
from streaming.views.corrections import correct, plan
from streaming.windows.session import SessionWindow
from streaming.windows.window import Tumbling
from tests.streaming.keyed.functions import payloads, readings, sums
from tests.support.feeds import land_all
from tests.support.instants import NOW
from tests.support.runs import tuples

COUNTED = {"readings": agg.count(), "greatest": agg.maximum("temperature")}
tens = Windowed(
    name="tens",
    of=readings,
    window=Tumbling("10 seconds"),
    aggregates=COUNTED,
    by=("id",),
    late="update",
    allowed_lateness="15 seconds",
)
visits = Windowed("visits", readings, SessionWindow("4 seconds"), COUNTED, by=("id",))
warm = Selected("warm", readings, select={"id": "id"}, where="temperature > 2")
pipeline = Pipeline(readings, (tens, visits, sums, warm))
READ = {"tens": ("first", "current")}

BATCHES = (
    "a@1=1, b@2=2, a@12=3",
    # Late for the first window, and between two visits.
    "a@4=4, a@25=5, b@26=6",
    # So late that no update counts it.
    "b@3=7, a@5=8, a@41=9, c@60=10",
)


def shown(spark: SparkSession, lake: Lake, operator: Operator, what: str) -> list[tuple[Any, ...]]:
    frame = runtime_of(operator, lake).readable[what](spark)
    return tuples(frame.drop("_written_at", "_corrected_at", "_updated_at"))


def everything(spark: SparkSession, lake: Lake) -> dict[tuple[str, str], list[tuple[Any, ...]]]:
    rows = {
        (operator.name, what): shown(spark, lake, operator, what)
        for operator in pipeline.operators
        for what in READ.get(operator.name, ("current",))
    }
    return {**rows, ("log", ""): tuples(read_log(spark, lake, readings), "_batch", "timestamp")}


@pytest.mark.long
def test_what_is_read_as_of_a_batch_equals_what_was_shown_when_it_was_the_newest(
    spark: SparkSession, lake: Lake
) -> None:
    then = {}
    for number, drawn in enumerate(BATCHES):
        land_all(lake, readings, payloads(drawn))
        drain(spark, lake, pipeline, now=partial(NOW.__add__, number * timedelta(hours=1)))
        for view in pipeline.corrected:
            correct(spark, lake, view, [pending.day for pending in plan(spark, lake, view)], lambda: NOW)
        if number == 1:
            savepoint(lake, pipeline, "second", lambda: NOW)
        then[number] = everything(spark, lake)
    assert len({str(read["tens", "current"]) for read in then.values()}) == len(BATCHES)

    for number, expected in then.items():
        cut = lake.as_of({"readings": number})
        assert everything(spark, cut) == expected, number
        assert not [finding for finding in audit(spark, cut, pipeline) if not finding.holds], number
        # What is pinned, as a report pins it, is the same.
        for operator in pipeline.operators:
            runtime = runtime_of(operator, cut)
            assert len(tuples(runtime.current_at(spark, runtime.versions()))) == len(expected[operator.name, "current"])

    # An instant and a savepoint name a batch too; nothing runs in a lake that is read as of one.
    assert lake_as_of(lake, pipeline, "second") == lake_as_of(lake, pipeline, "1") == lake.as_of({"readings": 1})
    between = NOW + timedelta(hours=1, minutes=30)
    assert lake_as_of(lake, pipeline, between.isoformat()) == lake.as_of({"readings": 1})
    with pytest.raises(LeaseError, match="as of an older batch"), take_lease(lake.as_of({}), pipeline):
        pass
    with pytest.raises(LogError, match="has no batch 7; it has those from 0 to 2"):
        lake_as_of(lake, pipeline, "7")
    with pytest.raises(LogError, match="had a batch at 2020-01-01"):
        lake_as_of(lake, pipeline, "2020-01-01")
    with pytest.raises(SavepointError, match=r"no savepoint of pipeline 'readings'; savepoints are: second"):
        lake_as_of(lake, pipeline, "third")

    # Somebody takes a result of the first batch away: the audit as of it finds that, and that of the newest too.
    table = DeltaTable(lake.table(warm))
    table.alter.set_table_properties({"delta.appendOnly": "false"})
    table.delete("_batch = 0")
    broken = [finding.subject for finding in audit(spark, lake.as_of({"readings": 0}), pipeline) if not finding.holds]
    assert broken == ["warm"]

    # Two batches in one step: what has no rows to tell its batches by has no version of the first.
    land_all(lake, readings, payloads("a@70=1"), payloads("a@80=1"))
    drain(spark, lake, Pipeline(readings, (sums,)), now=lambda: NOW)
    with pytest.raises(
        OperatorError, match=r"'sums' has no version as of batch 3 of readings: .* those of: batch [24] of readings"
    ):
        shown(spark, lake.as_of({"readings": 3}), sums, "current")
    assert shown(spark, lake.as_of({"readings": 2}), sums, "current") == then[2]["sums", "current"]

    # Then it is computed from the log, beside the tables, and nothing is left of it.
    three, two = lake.as_of({"readings": 3}), lake.as_of({"readings": 2})
    with recomputed(spark, three, [sums]) as there:
        assert all(finding.holds for finding in audit(spark, there, Pipeline(readings, (sums,))))
        at_three = shown(spark, there, sums, "current")
        assert len(shown(spark, lake, sums, "current")) > len(at_three) > len(then[2]["sums", "current"])
    assert not Path(lake.path("_as_of"), Path(there.table(sums)).parts[-3]).exists()
    with recomputed(spark, two, pipeline.operators) as there:
        assert there == two
    # What a process has left that died meanwhile goes with the maintenance of a later week.
    left = Path(lake.path("_as_of", "dead", "rows"))
    left.parent.mkdir(parents=True)
    left.write_text("of a process that died")
    forget_recomputed(lake, utc_now() - timedelta(days=7))
    assert left.exists()
    forget_recomputed(lake, utc_now() + timedelta(days=7))
    assert not left.exists()
    # So it is where the versions of old were cleaned away.
    clean_state(lake.table(sums, "state"), utc_now() + timedelta(days=1))
    for number in (0, 1):
        with recomputed(spark, lake.as_of({"readings": number}), [sums]) as there:
            assert shown(spark, there, sums, "current") == then[number]["sums", "current"]
            assert there.table(sums) != lake.table(sums)
