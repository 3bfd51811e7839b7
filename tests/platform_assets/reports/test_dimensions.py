"""Tables that are kept elsewhere, and that a report joins: which version of them a report is made of."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest
from deltalake import DeltaTable, write_deltalake
from psycopg.conninfo import conninfo_to_dict
from pyspark.sql import DataFrame, SparkSession

from docs.examples.orders import orders
from platform_assets.reports.dimension import Dimension
from platform_assets.reports.errors import DimensionError
from platform_assets.reports.landed import land_dimension, newest_pin
from platform_assets.reports.publication import read_publication, read_report
from platform_assets.reports.publish import is_up_to_date, judge_and_publish
from platform_assets.reports.report import Report, Section
from platform_assets.reports.sources import Sources
from quality import GateClosed, Suite, always, pin, unique
from streaming import agg
from streaming.base.errors import DeclarationError
from streaming.declare import Pipeline, Windowed
from streaming.lake.lake import Lake
from streaming.log import read_log
from streaming.windows import Tumbling
from tests.streaming.keyed.test_pinned_histories import CUSTOMERS, SEGMENTS, customer
from tests.support.instants import at
from tests.support.postgres import run as sql
from tests.support.runs import run

DAY = date(2025, 12, 1)
SHOPS = Dimension("shops", "dimensions/shops.csv", key=("order_id",), columns="order_id string not null, shop string")

orders_by_id = Windowed(
    name="orders_by_id",
    description="Revenue per order.",
    of=orders,
    by=("order_id",),
    window=Tumbling("1 day"),
    aggregates={"revenue": agg.sum("amount")},
)
pipeline = Pipeline(stream=orders, views=(orders_by_id,))


def by_shop(sources: Sources) -> DataFrame:
    joined = sources.current(orders_by_id).join(sources.dimension("shops"), "order_id")
    return joined.select("shop", "revenue").orderBy("shop")


report = Report(
    pipeline=pipeline,
    description="What each shop brought.",
    sections=(Section("by_shop", "Per shop.", by_shop, lambda sources: Suite((unique("once", ("shop",)),))),),
    dimensions=(SHOPS,),
)


def put(lake: Lake, text: str) -> None:
    file = Path(lake.path(SHOPS.path))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def rows(lake: Lake, dimension: Dimension) -> list[dict[str, object]]:
    pinned = land_dimension(lake, dimension)
    return DeltaTable(pinned.uri, pinned.version).to_pyarrow_table().to_pylist()


def order(order_id: str, amount: float) -> dict[str, object]:
    return {"order_id": order_id, "ordered_at": "2025-12-01T09:00:00Z", "amount": amount}


@pytest.mark.long
def test_a_report_is_made_of_one_version_of_its_dimension_and_says_which(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, pipeline, [order("a", 10.5), order("b", 4.5)], end_of_input=True)
    put(lake, "order_id,shop\na,Nauen\nb,NA\n")
    first = judge_and_publish(spark, lake, report, "run-1")
    assert read_report(lake, "by_shop")["by_shop"].to_pylist() == [  # type: ignore[index]
        {"shop": "NA", "revenue": Decimal("4.50")},
        {"shop": "Nauen", "revenue": Decimal("10.50")},
    ]
    assert (first.dimensions["shops"].table, first.dimensions["shops"].version) == ("dimensions/shops", 0)
    assert is_up_to_date(lake, report, pin(lake, pipeline))

    put(lake, "order_id,shop\na,Nauen\nb,Ulm\n")
    assert not is_up_to_date(lake, report, pin(lake, pipeline))
    judge_and_publish(spark, lake, report, "run-2")
    publication = read_publication(lake, "by_shop")
    assert publication is not None and publication.dimensions["shops"].version == 1
    # What the report before was made of is still there.
    assert [row["shop"] for row in first.dimensions["shops"].read(spark).orderBy("shop").collect()] == ["NA", "Nauen"]

    # A second row for an order would count its revenue twice.
    put(lake, "order_id,shop\na,Nauen\nb,Ulm\nb,Bonn\n")
    with pytest.raises(GateClosed, match=r"'unique_key' on dimensions/shops version 2 failed: .*order_id=b, times=2"):
        judge_and_publish(spark, lake, report, "run-3")
    assert read_publication(lake, "by_shop") == publication


def test_the_log_of_a_report_has_the_rows_that_arrived_and_no_heartbeat(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, pipeline, [order("a", 10.5), {"order_id": "b", "amount": 1}], end_of_input=True)
    assert read_log(spark, lake, orders).count() == 3
    log = Sources(spark, lake, pipeline, pin(lake, pipeline)).log
    assert sorted((row["order_id"], row["_rejected"] is None) for row in log.collect()) == [("a", True), ("b", False)]


@pytest.mark.long
def test_the_log_of_a_stream_with_a_key_has_what_stands_and_what_was_rejected(spark: SparkSession, lake: Lake) -> None:
    keyed = replace(orders, key=("order_id",), sequence="amount")
    of_keyed = Pipeline(keyed, (replace(orders_by_id, of=keyed),))
    run(spark, lake, of_keyed, [order("a", 10.5), order("a", 11.5), {"order_id": "b", "amount": 1}], end_of_input=True)
    log = Sources(spark, lake, of_keyed, pin(lake, of_keyed)).log
    told = sorted((row["order_id"], row["amount"], row["_rejected"] is None) for row in log.collect())
    assert told == [("a", Decimal("11.50"), True), ("b", Decimal("1.00"), False)]


@pytest.mark.long
def test_a_dimension_that_only_warns_is_published_with_the_warning(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, pipeline, [order("a", 10.5)], end_of_input=True)
    put(lake, "order_id,shop\na,NA\n")
    known = always("shop_known", "shop <> 'NA'", "every order has a shop", level="warn")
    mild = replace(report, dimensions=(replace(SHOPS, expectations=(known,)),))
    published = judge_and_publish(spark, lake, mild, "run-1")
    assert [(each.table, each.expectation) for each in published.warnings] == [("dimensions/shops", "shop_known")]
    publication = read_publication(lake, "by_shop")
    assert publication is not None and publication.run_id == "run-1"


def test_the_same_content_is_no_new_version_and_other_columns_are_one(lake: Lake) -> None:
    put(lake, "order_id,shop,opened\na,Nauen,2020-01-01\n")
    assert newest_pin(lake, SHOPS) is None
    assert land_dimension(lake, SHOPS) == land_dimension(lake, SHOPS) == newest_pin(lake, SHOPS)
    dated = replace(SHOPS, columns="order_id string, opened date")
    assert newest_pin(lake, dated) is None
    assert rows(lake, dated) == [{"order_id": "a", "opened": date(2020, 1, 1)}]
    assert land_dimension(lake, dated).version == 1


def test_a_csv_file_has_the_types_that_are_declared_and_only_what_is_empty_is_null(lake: Lake) -> None:
    columns = "order_id string, shop string, price decimal(6, 2), seen timestamp, open boolean"
    put(lake, 'order_id,open,price,seen,shop\na,true,1.50,2025-12-01T09:00:00+01:00,""\nb,,,,\n')
    assert rows(lake, replace(SHOPS, columns=columns)) == [
        {
            "order_id": "a",
            "shop": "",
            "price": Decimal("1.50"),
            "seen": datetime(2025, 12, 1, 8, tzinfo=UTC),
            "open": True,
        },
        {"order_id": "b", "shop": None, "price": None, "seen": None, "open": None},
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("order_id,place\na,Nauen\n", "'shop'.* does not exist in CSV file"),
        ("order_id,shop\na,Nauen,7\n", "Expected 2 columns, got 3: a,Nauen,7"),
        ("order_id,shop\na,Nauen\n,Ulm\n", "column 'order_id' is empty in row 2, and declared not null"),
    ],
)
def test_a_file_that_is_not_what_is_declared_is_refused_with_the_row(lake: Lake, text: str, reason: str) -> None:
    put(lake, text)
    with pytest.raises(DimensionError, match=f"'dimensions/shops.csv' is not what .*{reason}"):
        land_dimension(lake, SHOPS)
    assert newest_pin(lake, SHOPS) is None


def test_a_parquet_file_becomes_versions_and_a_delta_table_has_its_own(lake: Lake) -> None:
    content = pa.table({"order_id": ["a"], "shop": ["Nauen"]})
    put(lake, "")
    pa_parquet.write_table(content, lake.path("dimensions/shops.parquet"))
    write_deltalake(lake.path("dimensions/shop_table"), content)
    parquet = Dimension("from_parquet", "dimensions/shops.parquet", key=("order_id",))
    kept = Dimension("kept", "dimensions/shop_table", key=("order_id",))
    assert rows(lake, parquet) == rows(lake, kept) == content.to_pylist()
    assert land_dimension(lake, kept) == newest_pin(lake, kept)
    write_deltalake(lake.path("dimensions/shop_table"), content, mode="append")
    assert land_dimension(lake, kept).version == 1


@pytest.mark.long
def test_a_history_is_a_dimension_of_another_pipelines_reports_with_a_row_for_each_interval(
    spark: SparkSession, lake: Lake
) -> None:
    """
    00:10  v1 new     |-------------|------->
    00:50  v2 gold                  |------->
    """
    segments = Dimension("segments", SEGMENTS)
    with pytest.raises(DimensionError, match="that of a history is there once its pipeline has run"):
        land_dimension(lake, segments)
    customers = Pipeline(CUSTOMERS, (SEGMENTS,))
    run(spark, lake, customers, [customer(1, 10, "new")])
    before = land_dimension(lake, segments)
    run(spark, lake, customers, [customer(2, 50, "gold")])
    told = [(row["segment"], row["valid_from"], row["valid_to"]) for row in rows(lake, segments)]
    assert sorted(told, key=str) == [("gold", at(50), None), ("new", at(10), at(50))]
    assert [row["valid_to"] for row in before.read(spark).collect()] == [None]
    # Two intervals of a customer are no repetition, and two rows of an interval would be.
    assert segments.key == ("id", "valid_from")
    with pytest.raises(DeclarationError, match="whose rows are told apart by id, valid_from"):
        Dimension("segments", SEGMENTS, key=("id",))


def test_a_table_of_postgres_becomes_versions_of_what_it_held_at_one_instant(lake: Lake, postgres: str) -> None:
    declared = (
        "id bigint not null, shop string, price decimal(6, 2), seen timestamp, opened date, open boolean, share double"
    )
    dimension = Dimension("shops", "trade.shops", key=("id",), columns=declared, connection=postgres)
    with pytest.raises(DimensionError, match=r"'shops' cannot be read from the table 'trade.shops' .*does not exist"):
        land_dimension(lake, dimension)
    assert newest_pin(lake, dimension) is None
    sql(
        postgres,
        "create schema trade",
        "create table trade.shops (id bigint, open boolean, shop text, price numeric, seen timestamptz, opened date, "
        "share double precision, notes text)",
        "insert into trade.shops values (2, null, '', null, null, null, null, null), (1, true, E'a \"b\",\\nc', 1.5, "
        "'2025-12-01 09:00:00.25+01', '2020-01-31', 0.1, 'not declared')",
    )
    sql(postgres, f"alter database {conninfo_to_dict(postgres)['dbname']} set datestyle to German")
    first = {
        "id": 1,
        "shop": 'a "b",\nc',
        "price": Decimal("1.50"),
        "seen": datetime(2025, 12, 1, 8, 0, 0, 250_000, tzinfo=UTC),
        "opened": date(2020, 1, 31),
        "open": True,
        "share": 0.1,
    }
    second = dict.fromkeys(first) | {"id": 2, "shop": ""}
    assert rows(lake, dimension) == [first, second]
    sql(postgres, "update trade.shops set notes = 'x' where id = 2", "update trade.shops set notes = 'y' where id = 1")
    assert land_dimension(lake, dimension) == newest_pin(lake, dimension), "the rows lie in another order there"
    assert land_dimension(lake, dimension).version == 0
    sql(postgres, "update trade.shops set shop = null where id = 2")
    assert newest_pin(lake, dimension) is None
    assert rows(lake, dimension) == [first, second | {"shop": None}]
    assert land_dimension(lake, dimension).version == 1
    with pytest.raises(DimensionError, match=r"column \"place\" does not exist. Correct the declaration"):
        land_dimension(lake, replace(dimension, columns="id bigint, place string"))


def test_what_is_not_there_is_told_with_its_place(lake: Lake) -> None:
    with pytest.raises(DimensionError, match=r"dimension 'shops' has no file at '.*/dimensions/shops.csv'; put one"):
        land_dimension(lake, SHOPS)
    with pytest.raises(DimensionError, match="has no Delta table at"):
        land_dimension(lake, Dimension("kept", "dimensions/nowhere", key=("id",)))
    assert newest_pin(lake, SHOPS) is None


def test_a_declaration_that_cannot_work_is_refused_when_it_is_made() -> None:
    with pytest.raises(DeclarationError, match="needs columns: a CSV file does not know its types"):
        Dimension("shops", "shops.csv", key=("id",))
    with pytest.raises(DeclarationError, match="must not have columns"):
        Dimension("shops", "shops.parquet", key=("id",), columns="id string")
    with pytest.raises(DeclarationError, match="has no column 'idd' for its key; it has: id, shop"):
        Dimension("shops", "shops.csv", key=("idd",), columns="id string, shop string")
    with pytest.raises(DeclarationError, match="has no key"):
        Dimension("shops", "shops.parquet", key=())
    with pytest.raises(DeclarationError, match="has type 'map<string, string>', which a CSV file cannot carry"):
        Dimension("shops", "shops.csv", key=("id",), columns="id string, more map<string, string>")
    with pytest.raises(DeclarationError, match=r"needs columns: .*of Postgres those that are named are read"):
        Dimension("shops", "shops", key=("id",), connection="service=shop")
    with pytest.raises(DeclarationError, match=r"'a\.b\.c' names no table"):
        Dimension("shops", "a.b.c", key=("id",), columns="id string", connection="service=shop")
    with pytest.raises(DeclarationError, match="the connection of dimension 'shops' has a password"):
        Dimension("shops", "shops", key=("id",), columns="id string", connection="host=db password=hunter2")
    with pytest.raises(DeclarationError, match="two dimensions 'shops'"):
        replace(report, dimensions=(SHOPS, replace(SHOPS, key=("shop",))))
    with pytest.raises(DeclarationError, match="have 'pdf'; there are: csv, parquet, html"):
        replace(report.sections[0], files=("pdf",))  # type: ignore[arg-type]


def test_a_section_is_written_beside_its_table_as_it_asks(spark: SparkSession, lake: Lake) -> None:
    put(lake, "order_id,shop\na,<Nauen>\n")
    run(spark, lake, pipeline, [order("a", 10.5)], end_of_input=True)
    section = replace(report.sections[0], files=("parquet", "html"))
    done = judge_and_publish(spark, lake, replace(report, sections=(section,)), "run-1")
    parquet, page = done.files["by_shop"]
    assert [Path(path).name for path in (parquet, page)] == ["by_shop.parquet", "by_shop.html"]
    assert pa_parquet.read_table(parquet).to_pylist() == [{"shop": "<Nauen>", "revenue": Decimal("10.50")}]
    assert "<h1>Per shop.</h1>" in Path(page).read_text() and "<td>&lt;Nauen&gt;</td>" in Path(page).read_text()
    assert not Path(f"{lake.report('by_shop')}.csv").exists()


def test_always_comes_on_top_of_what_every_dimension_must_be() -> None:
    suite = replace(SHOPS, expectations=(always("named", "shop <> ''", "a shop has a name"),)).suite
    assert [expectation.name for expectation in suite.expectations] == ["unique_key", "key_present", "named"]
