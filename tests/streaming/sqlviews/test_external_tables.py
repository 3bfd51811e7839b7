"""Delta tables that others write, as SQL views read them: by version, and by the rows that differ between two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from streaming import BoundedOutOfOrderness, ExternalTable, Files, Json, Lake, Pipeline, Stream, View
from streaming.audit.laws import audit
from streaming.base import BATCH, SIGN, BadName, DeclarationError, SourceError
from streaming.operators.runtime import frame, runtime_of
from streaming.sqlviews.relations import ExternalRelation
from streaming.tables import delta
from tests.support.instants import at
from tests.support.runs import run

ORDERS = Stream(
    name="orders",
    source=Files("landing/orders"),
    format=Json("id string, at timestamp, region bigint, amount bigint"),
    event_time="at",
    clock=BoundedOutOfOrderness("10 seconds"),
)
REGIONS = ExternalTable("regions", "dimensions/regions", "id bigint, name string")
TOTALS = View(
    "totals",
    "select r.id, r.name, sum(amount) as amount from orders o join regions r on o.region = r.id group by r.id, r.name",
    of=(ORDERS, REGIONS),
    key=("id",),
)
PIPELINE = Pipeline(ORDERS, (TOTALS,))

FIRST = [(1, "north"), (2, "south"), (3, "west")]


def write(lake: Lake, rows: Sequence[tuple[Any, ...]], mode: Any = "append", **options: Any) -> None:
    names, types = ("id", "name", "area"), (pa.int64(), pa.string(), pa.float64())
    columns = {
        name: pa.array(of, type_) for name, of, type_ in zip(names, zip(*rows, strict=True), types, strict=False)
    }
    Path(lake.path("dimensions")).mkdir(parents=True, exist_ok=True)
    write_deltalake(lake.path(REGIONS.place), pa.table(columns), mode=mode, **options)


def table(lake: Lake) -> DeltaTable:
    return DeltaTable(lake.path(REGIONS.place))


def order(id: str, region: int, amount: int) -> dict[str, Any]:
    return {"id": id, "at": at(1).isoformat(), "region": region, "amount": amount}


def totals(spark: SparkSession, lake: Lake, view: View = TOTALS) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame(spark, lake, view).select(*view.columns).collect())


def told(spark: SparkSession, lake: Lake, step: int) -> list[tuple[int, int]]:
    """The keys of the rows that a step has added or taken back, with their signs."""
    rows = delta.read(spark, lake.table(TOTALS)).where(f"{BATCH} = {step}")
    return sorted((row["id"], row[SIGN]) for row in rows.collect())


def findings(spark: SparkSession, lake: Lake) -> dict[str, str]:
    found = [finding for finding in audit(spark, lake, PIPELINE) if finding.law == "view"]
    assert all(finding.holds for finding in found)
    return {finding.subject: finding.compared for finding in found}


@pytest.fixture
def filled(spark: SparkSession, lake: Lake) -> Lake:
    write(lake, FIRST)
    run(spark, lake, PIPELINE, [order("1", 1, 10), order("2", 2, 5), order("3", 3, 1)])
    assert totals(spark, lake) == [(1, "north", 10), (2, "south", 5), (3, "west", 1)]
    return lake


def test_a_row_of_the_table_that_changed_touches_its_keys_alone(spark: SparkSession, filled: Lake) -> None:
    table(filled).update(updates={"name": "'nord'"}, predicate="id = 1")
    run(spark, filled, PIPELINE)
    assert totals(spark, filled) == [(1, "nord", 10), (2, "south", 5), (3, "west", 1)]
    assert told(spark, filled, 1) == [(1, -1), (1, 1)]
    # Both sides of a pair come in one step, and a row of the table goes.
    table(filled).delete("id = 2")
    write(filled, [(4, "east")])
    run(spark, filled, PIPELINE, [order("4", 4, 7), order("5", 1, 1)])
    assert totals(spark, filled) == [(1, "nord", 11), (3, "west", 1), (4, "east", 7)]
    assert told(spark, filled, 2) == [(1, -1), (1, 1), (2, -1), (4, 1)]
    assert runtime_of(TOTALS, filled).position() == "batch 1 and version 3 of regions"
    assert findings(spark, filled) == {"totals": "rows: those of the query over what stands of its sources"}
    # Nothing has changed: there is no step.
    run(spark, filled, PIPELINE)
    assert told(spark, filled, 3) == []


@pytest.mark.long
def test_rows_that_differ_between_two_versions_are_told_whatever_files_they_lie_in(
    spark: SparkSession, lake: Lake
) -> None:
    relation, oracle = ExternalRelation(lake, REGIONS), list[list[tuple[Any, ...]]]()
    positions = list[int]()

    def note() -> None:
        positions.append(relation.newest())
        rows = table(lake).to_pyarrow_table(columns=["id", "name"]).to_pylist()
        oracle.append([(row["id"], row["name"]) for row in rows])

    write(lake, [*FIRST, (3, "west")])
    note()
    write(lake, [(1, "north"), (None, "sea")])
    note()
    table(lake).optimize.compact()
    note()
    write(lake, [(3, "west", 1.5)], schema_mode="merge")
    note()
    table(lake).delete("id = 3")
    note()
    write(lake, [(1, "north"), (2, "south")], mode="overwrite", schema_mode="overwrite")
    note()
    for one in range(len(positions)):
        for other in range(one + 1, len(positions)):
            signed = relation.signed(spark, positions[one], positions[other])
            assert signed is not None
            differing = list(oracle[other])
            gone = [row for row in oracle[one] if row not in differing or differing.remove(row)]  # type: ignore[func-returns-value]
            rows = [tuple(row) for row in signed.collect()]
            key = repr
            assert sorted((r[:2] for r in rows if r[2] > 0), key=key) == sorted(differing, key=key), (one, other)
            assert sorted((r[:2] for r in rows if r[2] < 0), key=key) == sorted(gone, key=key), (one, other)


@pytest.mark.long
def test_a_version_that_was_cleaned_away_costs_a_whole_computation_and_loses_nothing(
    spark: SparkSession, filled: Lake
) -> None:
    table(filled).update(updates={"name": "'nord'"}, predicate="id = 1")
    table(filled).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert "not compared: version 0 of regions" in findings(spark, filled)["totals"]
    run(spark, filled, PIPELINE)
    assert totals(spark, filled) == [(1, "nord", 10), (2, "south", 5), (3, "west", 1)]
    assert told(spark, filled, 1) == [(1, -1), (1, 1)]
    assert "not compared" not in findings(spark, filled)["totals"]


@pytest.mark.long
def test_another_table_in_the_same_place_is_no_later_version(spark: SparkSession, filled: Lake) -> None:
    Path(filled.path(REGIONS.place)).rename(filled.path("dimensions/old"))
    # As many versions as before, and rows of which only the table differs.
    write(filled, [(1, "nord"), (2, "south"), (3, "west")])
    run(spark, filled, PIPELINE)
    assert totals(spark, filled) == [(1, "nord", 10), (2, "south", 5), (3, "west", 1)]


@pytest.mark.long
def test_a_partitioned_table_is_compared_by_its_rows(spark: SparkSession, lake: Lake) -> None:
    write(lake, FIRST, partition_by=["name"])
    run(spark, lake, PIPELINE, [order("1", 1, 10), order("2", 2, 5)])
    table(lake).update(updates={"name": "'sud'"}, predicate="id = 2")
    run(spark, lake, PIPELINE)
    assert totals(spark, lake) == [(1, "north", 10), (2, "sud", 5)]
    assert told(spark, lake, 1) == [(2, -1), (2, 1)]


def test_a_table_that_is_missing_or_has_other_columns_pauses_the_view_until_it_is_right(
    spark: SparkSession, lake: Lake
) -> None:
    with pytest.raises(SourceError, match=r"there is no Delta table at '.*dimensions/regions'"):
        run(spark, lake, PIPELINE, [order("1", 1, 10)])
    Path(lake.path("dimensions")).mkdir(parents=True)
    write_deltalake(lake.path(REGIONS.place), pa.table({"id": pa.array([1], pa.int32()), "label": ["north"]}))
    with pytest.raises(SourceError, match=r"declared as id bigint, name string, but in .* column 'id' is of type int"):
        run(spark, lake, PIPELINE)
    write(lake, FIRST, mode="overwrite", schema_mode="overwrite")
    run(spark, lake, PIPELINE)
    assert totals(spark, lake) == [(1, "north", 10)]


def test_what_is_current_of_another_pipeline_is_read_by_its_changes(spark: SparkSession, lake: Lake) -> None:
    sums = "select region, sum(amount) as total from orders group by region"
    of_region = View("of_region", sums, (ORDERS,), ("region",))
    visits = replace(ORDERS, name="visits", source=Files("landing/visits"))
    query = "select v.id, t.total from visits v left join totals t on t.region = v.region"
    paid = View("paid", query, (visits, ExternalTable("totals", of_region)), ("id",))
    upstream, downstream = Pipeline(ORDERS, (of_region,)), Pipeline(visits, (paid,))

    run(spark, lake, downstream, [order("a", 1, 0), order("b", 2, 0)])
    assert not delta.exists(lake.table(paid))
    for orders in ([order("1", 1, 10), order("2", 2, 5)], [order("3", 2, 1)]):
        run(spark, lake, upstream, orders)
        run(spark, lake, downstream)
    assert totals(spark, lake, paid) == [("a", 10), ("b", 6)]
    rows = delta.read(spark, lake.table(paid)).where(f"{BATCH} = 1").collect()
    assert sorted((row["id"], row[SIGN]) for row in rows) == [("b", -1), ("b", 1)]
    assert runtime_of(paid, lake).position() == "batch 0 and revision 1 of totals"
    assert all(finding.holds for finding in audit(spark, lake, downstream))


def test_a_declaration_that_cannot_be_right_is_refused() -> None:
    with pytest.raises(BadName):
        replace(REGIONS, name="Regions!")
    with pytest.raises(DeclarationError, match="has more in it than a place"):
        replace(REGIONS, uri="s3://key:secret@bucket/regions")
    with pytest.raises(DeclarationError, match="names no place"):
        replace(REGIONS, uri="/")
    with pytest.raises(DeclarationError, match="reads regions, and no stream"):
        View("alone", "select id from regions", of=(REGIONS,), key=("id",))
    with pytest.raises(DeclarationError, match="twice in of"):
        replace(TOTALS, of=(ORDERS, REGIONS, replace(REGIONS, uri="other")))
    moved = replace(TOTALS, of=(ORDERS, replace(REGIONS, uri="other")))
    assert moved.fingerprint != TOTALS.fingerprint
