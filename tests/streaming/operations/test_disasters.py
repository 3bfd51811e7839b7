"""Disasters: derived tables are lost, or a target is ahead of what was restored; no row is lost or doubled."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import agg
from streaming.audit.deliveries import audit_deliveries
from streaming.audit.laws import audit
from streaming.base.errors import ChangedDeclaration, ProgressError
from streaming.declare.delivery import Delivery
from streaming.declare.pipeline import Pipeline
from streaming.declare.selected import Selected
from streaming.declare.windowed import Windowed
from streaming.lake.lake import Lake
from streaming.operations.rebuild import rebuild
from streaming.operations.redeliver import begin_anew
from streaming.operations.restore import restore, restore_to
from streaming.operations.savepoint import savepoint
from streaming.operators.runtime import runtime_of
from streaming.service.drain import Drained, drain
from streaming.sinks.postgres import Postgres
from streaming.tables import delta
from streaming.views.corrections import correct, plan
from streaming.windows.session import SessionWindow
from streaming.windows.window import Tumbling
from tests.streaming.keyed.functions import payloads, readings, sums
from tests.support.feeds import land
from tests.support.instants import NOW
from tests.support.postgres import rows
from tests.support.runs import run, tuples

tens = Windowed(
    "tens",
    readings,
    Tumbling("10 seconds"),
    {"readings": agg.count()},
    by=("id",),
    late="update",
    allowed_lateness="15 seconds",
)
visits = Windowed("visits", readings, SessionWindow("4 seconds"), {"readings": agg.count()}, by=("id",))
warm = Selected("warm", readings, select={"id": "id"}, where="temperature > 2")
derived = Pipeline(readings, (tens, visits, sums, warm))


def shown(spark: SparkSession, lake: Lake) -> dict[tuple[str, str], list[tuple[Any, ...]]]:
    written = ("_written_at", "_corrected_at", "_updated_at")
    return {
        (operator.name, what): tuples(runtime_of(operator, lake).readable[what](spark).drop(*written))
        for operator in derived.operators
        for what in ("current", "state", "corrections", "updates")
        if what in runtime_of(operator, lake).readable
        and delta.exists(lake.table(operator, what.replace("current", "")))
    }


@pytest.mark.long
def test_whatever_derived_tables_are_lost_a_rebuild_makes_them_again_from_the_log(
    spark: SparkSession, lake: Lake
) -> None:
    run(spark, lake, derived, payloads("a@1=1, b@2=2, a@12=3"), payloads("a@4=4, a@25=5, b@26=6"), payloads("a@5=8"))
    for view in derived.corrected:
        correct(spark, lake, view, [pending.day for pending in plan(spark, lake, view)], lambda: NOW)
    before = shown(spark, lake)
    assert {"updates", "corrections", "state", "current"} == {what for _, what in before}

    # Once all that lies beside the results is lost, and once all of it.
    for lost in ("beside", "all"):
        for operator in derived.operators:
            for suffix in operator.reserved_suffixes if lost == "beside" else ("", *operator.reserved_suffixes):
                shutil.rmtree(lake.table(operator, suffix), ignore_errors=True)
            rebuild(spark, lake, derived, operator, now=lambda: NOW)
        assert shown(spark, lake) == before, lost
    assert [finding for finding in audit(spark, lake, derived) if not finding.holds] == []


@pytest.mark.long
def test_postgres_that_is_ahead_of_a_restored_lake_is_refused_and_then_has_every_row_once(
    spark: SparkSession, tmp_path: Path, postgres: str
) -> None:
    lake, older, second = (Lake(str(tmp_path / name)) for name in ("lake", "older", "second"))
    # A batch is one row: Postgres says 2, where the copy and the savepoint say 0.
    raw = Delivery("raw", readings, Postgres("raw", ("id", "timestamp"), postgres), batch=1)
    out = Delivery("totals", sums, Postgres("totals", ("id", "total"), postgres), batch=1)
    whole = Pipeline(readings, (sums,), deliveries=(raw, out))

    def go(where: Lake, hour: int, *batches: list[dict[str, Any]]) -> Drained:
        for batch in batches:
            land(readings.source.location(where), batch)
        return drain(spark, where, whole, now=lambda: NOW + timedelta(hours=hour))

    go(lake, 0, payloads("a@1=1"))
    savepoint(lake, whole, "early", lambda: NOW)
    shutil.copytree(lake.root, older.root)
    go(lake, 1, payloads("a@2=2, a@3=4"))

    def there(table: str, value: str) -> list[float]:
        return [float(row[0]) for row in rows(postgres, f"select {value} from {table} order by 1")]

    assert (there("raw", "temperature"), there("totals", "total")) == ([1, 2, 4], [1, 3, 7])

    # An older copy of the lake takes the place of the lake; only its landing folder is of today.
    shutil.rmtree(lake.root + "/readings")
    shutil.rmtree(lake.root + "/_checkpoints")
    for folder in ("readings", "_checkpoints"):
        shutil.copytree(f"{older.root}/{folder}", f"{lake.root}/{folder}")
    with pytest.raises(ProgressError, match=r"got there up to batch 2, and the lake that it is at batch 0: .*--all"):
        go(lake, 2)
    assert (there("raw", "temperature"), there("totals", "total")) == ([1, 2, 4], [1, 3, 7])
    for delivery in (raw, out):
        begin_anew(spark, lake, whole, delivery, again=True, now=lambda: NOW)
    go(lake, 3, payloads("a@4=8"))
    assert (there("raw", "temperature"), there("totals", "total")) == ([1, 2, 4, 8], [1, 3, 7, 15])

    # A table that is restored in place is of another generation, and a lake of its own waits for a decision.
    restore(spark, lake, whole, "early", lambda: NOW)
    with pytest.raises(ChangedDeclaration, match=r"generation .*tidemark redeliver readings totals --go-on"):
        go(lake, 4, payloads("a@5=16"))
    assert there("totals", "total") == [1, 3, 7, 15] and there("raw", "temperature") == [1, 2, 4, 8, 16]
    begin_anew(spark, lake, whole, out, again=False, now=lambda: NOW)
    assert there("totals", "total") == [1, 3, 7, 15, 31]
    assert [finding for finding in audit_deliveries(spark, lake, whole) if not finding.holds] == []

    restore_to(lake, whole, "early", second)
    assert set(go(second, 5).held) == {"raw", "totals"}
    # What it is told to go on with there is another lake's: Postgres knows whose its rows are.
    with pytest.raises(ProgressError, match="progress of another delivery that is called 'readings/totals' too"):
        begin_anew(spark, second, whole, out, again=False, now=lambda: NOW)
    assert there("totals", "total") == [1, 3, 7, 15, 31]
