"""What the lake publishes is told from declarations and tables alone, of every kind of operator."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from streaming.base.errors import CatalogError
from streaming.catalogs import CatalogColumn, TableEntry, compare, lake_entries, lake_uri
from streaming.catalogs.entries import sql_type
from streaming.catalogs.hive import HiveCatalog, hive_type
from streaming.catalogs.sync import Change, difference, what_differs
from streaming.lake import Lake
from tests.streaming.catalogs.contract import DOORS, PIPELINE, WIDE, a_lake
from tests.support.old_lake import LAKES, unpack

LAKE = "file:///lake"
OURS = {"tidemark.lake": LAKE, "tidemark.pipeline": "doors"}
A = TableEntry("s", "a", "file:///lake/a", (CatalogColumn("n", "int"), CatalogColumn("m", "int")), properties=OURS)
ARCHIVE = Path(__file__).parents[2] / "support" / "lakes" / "0.1.0-every-kind.tar.gz"


def test_every_table_that_a_person_may_read_is_told_with_what_its_columns_mean(tmp_path: Path) -> None:
    lake = unpack(ARCHIVE, tmp_path)
    entries = {str(entry): entry for each in LAKES["0.1.0-every-kind"].pipelines for entry in lake_entries(lake, each)}
    there = {path.parent.relative_to(lake.root).as_posix() for path in Path(lake.root).rglob("_delta_log")}
    # What only the platform reads: state, rows that wait, bookkeeping, savepoints, and changes of deliveries of 0.1.0.
    hidden = ("_state", "_pending", "_delivered", "/batches", "/dropped", "/progress")
    readable = {place for place in there if not place.endswith(hidden) and "_savepoints/" not in place}
    told = {entry.location.removeprefix(f"file://{lake.root}/") for entry in entries.values()}
    assert len(told) > 12 and readable - told <= {place for place in readable if "_changes" in place}
    assert told <= there
    for entry in entries.values():
        assert entry.comment.endswith((".", "?")) and entry.owner == entry.properties["tidemark.owner"] == "team:data"
        own = [column for column in entry.columns if column.name.startswith("_")]
        assert own == [] or any(column.comment for column in own), entry


@pytest.mark.parametrize(
    ("kind", "spark", "hive"),
    [
        ("long", "bigint", "bigint"),
        ("decimal(38,18)", "decimal(38,18)", "decimal(38,18)"),
        ("timestamp_ntz", "timestamp_ntz", "timestamp"),
        ({"type": "array", "elementType": "short", "containsNull": True}, "array<smallint>", "array<smallint>"),
        (
            {"type": "map", "keyType": "string", "valueType": "byte", "valueContainsNull": True},
            "map<string,tinyint>",
            "map<string,tinyint>",
        ),
        (
            {
                "type": "struct",
                "fields": [
                    {"name": "timestamp_ntz", "type": "integer"},
                    {"name": "a`b c", "type": {"type": "array", "elementType": "timestamp_ntz"}},
                ],
            },
            "struct<timestamp_ntz:int,`a``b c`:array<timestamp_ntz>>",
            "struct<timestamp_ntz:int,a__b_c:array<timestamp>>",
        ),
    ],
)
def test_types_of_a_delta_schema_are_told_in_sql(kind: Any, spark: str, hive: str) -> None:
    assert (sql_type(kind), hive_type(spark)) == (spark, hive)


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("/a lake/doors", "file:///a lake/doors"),
        ("file:///lake", "file:///lake"),
        ("s3a://bucket/lake/", "s3://bucket/lake"),
        ("s3://bucket/lake", "s3://bucket/lake"),
    ],
)
def test_a_place_of_the_lake_has_one_uri(path: str, uri: str) -> None:
    assert lake_uri(path) == uri


def test_hadoop_calls_s3_by_its_own_name() -> None:
    held = HiveCatalog("thrift://host").as_held(TableEntry("s", "t", "s3://bucket/lake/t"))
    assert held.location == "s3a://bucket/lake/t"


@pytest.mark.parametrize(
    ("standing", "why"),
    [
        (A, ""),
        (replace(A, comment="x", owner="y", location="z"), "location, comment, owner"),
        (replace(A, properties={**OURS, "tidemark.key": "n"}), "tidemark.key"),
        (replace(A, properties={**OURS, "of": "others"}), ""),
        (replace(A, columns=A.columns[:1]), "column m"),
        (replace(A, columns=A.columns[::-1]), "columns n, m"),
        (replace(A, columns=(*A.columns, *(CatalogColumn(each, "int") for each in "opqr"))), "columns o, p, q, ..."),
        (replace(A, columns=(CatalogColumn("n", "int", "meaning"), A.columns[1])), "column n"),
        (replace(A, columns=(CatalogColumn("n", "bigint"), A.columns[1])), "column n"),
    ],
)
def test_what_differs_is_named(standing: TableEntry, why: str) -> None:
    assert what_differs(A, standing) == why


def test_only_tables_of_this_lake_and_these_pipelines_are_withdrawn() -> None:
    b, c = replace(A, name="b"), replace(A, name="c", properties={**OURS, "tidemark.pipeline": "gates"})
    others = [
        replace(A, name="d", properties={}),
        replace(A, name="e", properties={"tidemark.lake": "file:///another", "tidemark.pipeline": "doors"}),
        replace(A, name="f", properties={"tidemark.pipeline": "doors"}),
    ]
    gone = "the lake does not have it"
    found = difference([A], [A, b, c, *others], LAKE, ["doors"])
    assert (found.changes, found.agreeing, found.taken) == ((Change("withdraw", b, why=gone),), 1, ())
    everything = difference([A], [A, b, c, *others], LAKE, ["doors"], {"s.c"})
    assert everything.changes == (Change("withdraw", b, why=gone), Change("withdraw", c, why=gone))
    assert difference([replace(A, name="d")], others, LAKE, ["doors"]).taken == (others[0],)


def test_a_table_of_another_pipeline_is_taken_over_only_from_the_very_same_place() -> None:
    theirs = replace(A, properties={**OURS, "tidemark.pipeline": "gates"})
    assert difference([A], [theirs], LAKE, ["doors"]).changes == (Change("change", A, theirs, "tidemark.pipeline"),)
    elsewhere = replace(theirs, location="file:///lake/elsewhere")
    assert difference([A], [elsewhere], LAKE, ["doors"]).taken == (elsewhere,)
    another = replace(theirs, properties={**theirs.properties, "tidemark.lake": "file:///another"})
    assert difference([A], [another], LAKE, ["doors"]).taken == (another,)


def test_two_tables_of_one_name_are_refused_with_both_places(tmp_path: Path) -> None:
    lake = a_lake(tmp_path)
    gates = replace(DOORS, name="gates")
    other = replace(PIPELINE, name="gates", streams=(gates,), operators=(replace(WIDE, of=gates),))
    write_deltalake(lake.path("gates", "wide"), pa.table({"_day": pa.array([1])}))
    with pytest.raises(CatalogError, match=r"doors/wide' and '.*gates/wide' would both be 's.wide' in the catalog"):
        compare(HiveCatalog("thrift://127.0.0.1:9"), Lake(lake.root), [PIPELINE, other], "s")
