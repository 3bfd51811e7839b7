"""Files of SQL views: what a file declares, and in which pipeline it is found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from streaming import (
    BoundedOutOfOrderness,
    ExternalTable,
    Files,
    Json,
    Pipeline,
    Selected,
    Stream,
    Tumbling,
    View,
    Windowed,
    agg,
)
from streaming.base import DeclarationError, Discovery
from streaming.declare.view_files import with_view_files
from streaming.sql import Query, QueryFile

ORDERS = Stream(
    name="orders",
    source=Files("landing/orders"),
    format=Json("id string, at timestamp, country string, amount decimal(10, 2)"),
    event_time="at",
    clock=BoundedOutOfOrderness("10 seconds"),
)
BY_HOUR = Windowed("by_hour", ORDERS, Tumbling("1 hour"), {"orders": agg.count()}, by=("country",))
PIPELINE = Pipeline(ORDERS, (BY_HOUR,))


STREAMS_ALONE = Pipeline(ORDERS)
BY_COUNTRY = "-- key: country\nselect country, count(*) as orders from orders group by country\n"


def found(folder: Path, pipeline: Pipeline = PIPELINE, **files: str) -> Discovery[Pipeline]:
    views = folder / "acme" / "views"
    views.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (views / f"{name}.sql").write_text(text)
    places = {pipeline.name: ("acme.pipelines.orders", "orders.py")}
    return with_view_files(Discovery((pipeline,), (), places), [views])


def test_a_file_is_a_view_of_the_pipeline_that_has_what_it_reads(tmp_path: Path) -> None:
    query = "select country, sum(amount) as amount from orders group by country"
    text = f"-- What each country has ordered.\n-- key: country\n-- every: 1 minute\n{query};\n"
    ((pipeline,), broken) = (discovery := found(tmp_path, revenue=text)).declared, discovery.broken
    assert broken == ()
    assert pipeline.operators == (
        BY_HOUR,
        View(
            "revenue",
            query,
            of=(ORDERS,),
            key=("country",),
            description="What each country has ordered.",
            every="1 minute",
        ),
    )


def test_a_view_may_read_that_of_another_file_and_what_is_current_of_an_operator(tmp_path: Path) -> None:
    discovery = found(
        tmp_path,
        a_last="-- key: ()\nselect max(orders) as orders from z_first",
        z_first="-- key: country\nwith one as (select * from by_hour) select country, sum(orders) as orders "
        "from one group by country",
    )
    assert discovery.broken == ()
    (pipeline,) = discovery.declared
    assert [operator.name for operator in pipeline.operators] == ["by_hour", "z_first", "a_last"]
    first, last = pipeline.operators[1:]
    assert isinstance(first, View) and isinstance(last, View)
    assert (first.of, last.of) == ((BY_HOUR,), (first,))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("-- keys: country\nselect 1 as one from orders", "line 1, has the unknown setting 'keys'"),
        ("-- key: id\nselect id from payments", "reads payments, and no pipeline has all of it; there are orders: "),
        ("-- key: city\nselect id from orders", "'city' is no column of the result"),
        ("-- key: id\ndrop table orders", "not one query"),
    ],
)
def test_a_file_that_is_no_view_is_told_with_the_reason(tmp_path: Path, text: str, words: str) -> None:
    discovery = found(tmp_path, revenue=text)
    (broken,) = discovery.broken
    assert broken.module == "acme/views/revenue.sql"
    assert words in broken.reason
    # The pipeline that is right goes on without it.
    assert discovery.declared == (PIPELINE,)


def test_a_pipeline_of_streams_alone_has_the_views_of_files(tmp_path: Path) -> None:
    discovery = found(tmp_path, STREAMS_ALONE, by_country=BY_COUNTRY)
    assert discovery.broken == ()
    (pipeline,) = discovery.declared
    assert [operator.name for operator in pipeline.operators] == ["by_country"]


def test_a_pipeline_with_neither_operators_nor_views_is_told_both_ways_to_get_one(tmp_path: Path) -> None:
    discovery = found(tmp_path, STREAMS_ALONE)
    assert discovery.declared == ()
    (broken,) = discovery.broken
    assert (broken.module, broken.file) == ("acme.pipelines.orders", "orders.py")
    for words in ("nothing is computed", "views/NAME.sql", "`tidemark new view NAME --sql`", "operators=(...)"):
        assert words in broken.reason


def _counted(patch: pytest.MonkeyPatch, of: type, name: str) -> list[object]:
    """What a class method is called with from now on; it does what it did."""
    calls: list[object] = []
    method = getattr(of, name)

    def counted(*args: object, **kwargs: object) -> object:
        calls.append(args)
        return method(*args, **kwargs)

    patch.setattr(of, name, counted)
    return calls


def test_a_file_is_parsed_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, of = _counted(monkeypatch, QueryFile, "read"), _counted(monkeypatch, Query, "of")
    last = "-- key: ()\nselect max(orders) as orders from by_country"

    def names() -> list[tuple[str, ...]]:
        (pipeline,) = found(tmp_path, STREAMS_ALONE).declared
        return [operator.columns for operator in pipeline.operators]

    found(tmp_path, STREAMS_ALONE, by_country=BY_COUNTRY, a_last=last)
    for _ in range(3):
        assert names() == [("country", "orders"), ("orders",)]
    assert (len(read), len(of)) == (2, 2)
    # What reads it is analysed anew, too.
    found(tmp_path, STREAMS_ALONE, by_country=BY_COUNTRY.replace("country, count", "country, id, count"))
    assert found(tmp_path, STREAMS_ALONE).declared == ()
    wider = BY_COUNTRY.replace("country, count", "country, max(id) as id, count")
    found(tmp_path, STREAMS_ALONE, by_country=wider)
    before = len(read)
    assert names() == [("country", "id", "orders"), ("orders",)]
    assert len(read) == before
    (tmp_path / "acme" / "views" / "a_last.sql").unlink()
    assert names() == [("country", "id", "orders")]


def test_a_file_names_tables_that_others_write(tmp_path: Path) -> None:
    regions = "-- table: regions at dimensions/regions (id bigint, name string)\n"
    other = "-- table: hours at orders.by_hour\n"
    query = "-- key: id\nselect p.id, r.name, h.orders from payments p join regions r on r.id = p.id join hours h"
    payments = Pipeline(replace(ORDERS, name="payments", source=Files("landing/payments")))
    views = tmp_path / "acme" / "views"
    views.mkdir(parents=True)
    (views / "paid.sql").write_text(f"{regions}{other}{query} on h.country = p.country\n")

    def read(*pipelines: Pipeline) -> Discovery[Pipeline]:
        return with_view_files(Discovery(pipelines, ()), [views])

    first, again = read(PIPELINE, payments), read(PIPELINE, payments)
    assert first.broken == ()
    view = first.by_name["payments"].operators[0]
    assert view.external == (
        ExternalTable("regions", "dimensions/regions", "id bigint, name string"),
        ExternalTable("hours", BY_HOUR),
    )
    assert [table.place for table in view.external] == ["dimensions/regions", "orders/by_hour_current"]
    assert again.by_name["payments"].operators[0] is view
    (idle, missing) = read(payments).broken[::-1]
    assert "nothing is computed" in idle.reason
    assert "names tables at orders.by_hour, and operators are: none" in missing.reason
    (views / "paid.sql").write_text(f"-- table: regions dimensions\n{query}")
    assert "line 1, has 'regions dimensions' where a table should be" in read(PIPELINE, payments).broken[0].reason
    (views / "paid.sql").write_text(f"{regions}{regions}{query}")
    assert "one of them twice" in read(PIPELINE, payments).broken[0].reason


def test_a_source_of_another_pipeline_is_refused_with_the_way_to_read_it() -> None:
    other = replace(ORDERS, name="payments", source=Files("landing/payments"))
    paid = View("paid", "select id from payments", (other,), ("id",))
    with pytest.raises(DeclarationError, match=r"follow it: Stream\(..., source=Table\(payments\)\)"):
        Pipeline(ORDERS, (paid,))
    hours = View("hours", "select country, orders from by_hour", (BY_HOUR,), ("country",))
    with pytest.raises(DeclarationError, match=r"read it as ExternalTable\('by_hour', by_hour\)"):
        Pipeline(ORDERS, (hours,))
    query = "select h.country from orders o join by_hour h on h.country = o.country"
    own = View("own", query, (ORDERS, ExternalTable("by_hour", BY_HOUR)), ("country",))
    with pytest.raises(DeclarationError, match="is an operator of pipeline 'orders' itself"):
        Pipeline(ORDERS, (own, BY_HOUR))
    joined = Selected("all_orders", ORDERS, {"id": "id"})
    with pytest.raises(DeclarationError, match="of which nothing is published as current"):
        ExternalTable("all_orders", joined)
    with pytest.raises(DeclarationError, match="which knows its columns"):
        ExternalTable("by_hour", BY_HOUR, "orders bigint")
