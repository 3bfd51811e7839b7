"""A pipeline of two streams and of two kinds of operator goes the way of every pipeline."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from docs.examples.late_counts import count_by_sensor
from docs.examples.late_counts import readings as rooms
from streaming import agg
from streaming.audit.laws import audit
from streaming.base.errors import ChangedDeclaration, DeclarationError
from streaming.declare.pipeline import Pipeline
from streaming.declare.windowed import Windowed
from streaming.lake.lake import Lake
from streaming.operations.maintenance import maintain
from streaming.operations.rebuild import rebuild
from streaming.operations.undeclared import undeclared_tables
from streaming.operators.runtime import runtime_of
from streaming.service.drain import drain
from streaming.sources.files import Files
from streaming.views.results import read_first
from streaming.windows.window import Tumbling
from tests.support.feeds import land_all, readings
from tests.support.instants import NOW, at
from tests.support.runs import tuples
from tests.support.tally import Tally

yards = replace(rooms, name="yards", source=Files("landing/yards"))
by_yard = Windowed("by_yard", yards, Tumbling("20 seconds"), {"readings": agg.count()}, by=("id",))
tally = Tally("tally", (rooms, yards))
house = Pipeline(name="house", streams=(rooms, yards), operators=(count_by_sensor, by_yard, tally))


@pytest.mark.long
def test_two_streams_and_two_kinds_of_operator_run_are_audited_maintained_and_rebuilt_together(
    spark: SparkSession, lake: Lake
) -> None:
    land_all(lake, rooms, readings("a@1, a@12"), readings("a@30, a@2"))
    land_all(lake, yards, readings("y@3"), readings("y@50"))
    drained = drain(spark, lake, house, now=lambda: NOW)

    assert {name: head.cause for name, head in drained.heads.items()} == {"readings": "source", "yards": "source"}
    assert {name: query.rows for name, query in drained.queries.items()} == {
        "readings.log": 4,
        "yards.log": 2,
        "count_by_sensor": 2,
        "by_yard": 1,
        "tally": 4,
    }
    # Each stream has a clock of its own: the yards' 50 closes no window of the rooms.
    assert tuples(read_first(spark, lake, count_by_sensor), "window_end", "readings") == [(at(10), 2), (at(20), 1)]
    assert tuples(read_first(spark, lake, by_yard), "window_end", "readings") == [(at(20), 1)]
    assert tuples(runtime_of(tally, lake).readable["tally"](spark), "stream", "_batch", "rows") == [
        *(("readings", 0, 2), ("readings", 1, 2)),
        *(("yards", 0, 1), ("yards", 1, 1)),
    ]

    findings = list(audit(spark, lake, house))
    assert {finding.subject for finding in findings} == {"readings", "yards", "count_by_sensor", "by_yard", "tally"}
    assert all(finding.holds for finding in findings)

    kept = {entry.table for entry in maintain(lake, house, now=lambda: NOW)}
    assert {"log", "batches", "count_by_sensor", "by_yard", "tally"} <= kept
    assert list(undeclared_tables(lake, house)) == []

    other = replace(tally, of=(rooms,))
    with pytest.raises(ChangedDeclaration, match="streams was readings, yards and is readings"):
        drain(spark, lake, replace(house, operators=(count_by_sensor, by_yard, other)), now=lambda: NOW)
    assert rebuild(spark, lake, house, tally, now=lambda: NOW).rows == 4


def test_an_operator_of_a_users_own_refuses_rows_that_are_taken_back_unless_it_says_otherwise() -> None:
    revised = replace(rooms, key=("id",), sequence="_origin.position")
    with pytest.raises(DeclarationError, match="takes each row for one that stands"):
        Pipeline(revised, (Tally("tally", (revised,)),))


def test_a_pipeline_of_several_streams_says_what_it_lacks() -> None:
    with pytest.raises(DeclarationError, match="a pipeline of the streams 'readings', 'yards' needs a name"):
        Pipeline(streams=(rooms, yards), operators=(by_yard,))
    with pytest.raises(DeclarationError, match="view 'tally' reads stream 'yards', but the pipeline's is 'readings'"):
        Pipeline(rooms, (tally,))
    with pytest.raises(DeclarationError, match="has no stream"):
        Pipeline(name="nothing", operators=(tally,))
    with pytest.raises(DeclarationError, match="has stream 'readings' twice"):
        Pipeline(name="twice", streams=(rooms, rooms), operators=(count_by_sensor,))
    assert Pipeline(rooms, (count_by_sensor,)) == Pipeline(
        name="readings", streams=(rooms,), operators=(count_by_sensor,)
    )
