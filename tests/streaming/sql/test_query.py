"""Names are found as Spark finds them, and a query tells its columns, relations, key and where its columns are from."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import pytest
import sqlglot

from streaming.base import BadQuery
from streaming.sql import GLOBAL, Query

RELATIONS = {
    "orders": ("o_id", "Customer", "amount", "Day", "address"),
    "customers": ("customer", "country", "valid_from", "valid_to"),
    "payments": ("o_id", "paid"),
    "flights.log": ("at", "day"),
    "my.table": ("a b", "C`d", 'q"uote'),
}
HISTORIES = {"customers": ("valid_from", "valid_to")}


def query(sql: str, *key: str) -> Query:
    return Query.of(sql, RELATIONS, key, histories=HISTORIES)


def text(sql: str, *key: str) -> str:
    """The query over tables of the same names, without the quotes."""
    return query(sql, *key).text(lambda name: f"`{name}`").replace("`", "")


def test_a_query_tells_its_columns_relations_and_key_as_they_are_written() -> None:
    made = query(
        "select DAY, Customer as `The Customer`, count(*) n from ORDERS left join Payments using (O_ID)"
        " group by day, customer",
        "day",
        "the customer",
    )
    assert made.columns == ("DAY", "The Customer", "n")
    assert made.key == ("DAY", "The Customer")
    assert made.relations == ("orders", "payments")


def test_lineage_is_followed_through_subqueries_unions_and_windows() -> None:
    made = query(
        "with paid as (select o_id, sum(paid) p from payments group by o_id)"
        " select o.day, c.country, paid.p + amount x, count(*) over (partition by o.day) n,"
        " (select max(at) from flights.log l where l.day = o.day) last,"
        " 1 as one from orders o join paid using (o_id) left join customers c on c.customer = o.customer"
        " union all select l.day, 'x', 0, 1, l.at, 2 from flights.log l",
        "day",
    )
    assert made.lineage == {
        "day": (("orders", "Day"), ("flights.log", "day")),
        "country": (("customers", "country"),),
        "x": (("payments", "paid"), ("orders", "amount")),
        "n": (("orders", "Day"),),
        "last": (("flights.log", "at"),),
        "one": (),
    }


def test_a_star_has_the_columns_that_using_brings_together_first() -> None:
    assert query("select * from orders join payments using (o_id)", "day").columns == (
        "o_id",
        "Customer",
        "amount",
        "Day",
        "address",
        "paid",
    )
    assert query("select p.*, o.day from orders o join payments p using (o_id)", "day").columns == (
        "o_id",
        "paid",
        "day",
    )


def test_a_full_join_by_using_has_the_value_of_either_side() -> None:
    assert text("select o_id from orders full join payments using (o_id)", "o_id") == (
        "SELECT coalesce(orders.o_id, payments.o_id) AS o_id FROM orders AS orders"
        " FULL JOIN payments AS payments ON orders.o_id = payments.o_id"
    )


def test_a_right_join_is_a_left_join_from_the_other_side() -> None:
    assert text("select * from payments p right join orders o using (o_id)", "o_id").startswith(
        "SELECT o.o_id AS o_id, p.paid AS paid, o.Customer AS Customer"
    )
    assert "FROM orders AS o LEFT JOIN payments AS p" in text(
        "select paid from payments p right join orders o using (o_id)"
    )


@pytest.mark.parametrize(
    ("sql", "column"),
    [
        ("select `a b` from `my.table`", "a b"),
        ("select t.`A B` from `my.table` t", "A B"),
        ("select `c``d` from `my.table`", "c`d"),
        ('select `q"uote` as `x.y z` from `my.table`', "x.y z"),
        ("select log.at from flights.log", "at"),
        ("select flights.log.at from flights.log", "at"),
        ("select o.address.city from orders o", "city"),
        ("select address.city.`zip code` from orders", "zip code"),
        ("select amount from (select * from orders) where amount > 1", "amount"),
        ("select day from orders order by whatever", "day"),
    ],
)
def test_a_name_is_found_whatever_its_case_and_its_signs(sql: str, column: str) -> None:
    made = query(sql, column)
    assert made.columns == (column,)
    for written in (
        made.text(lambda name: "lake.`odd name`"),
        made.affected(made.relations, lambda name: "changes", lambda name: "ever"),
        made.restricted(lambda name: "now", "keys"),
    ):
        assert sqlglot.parse_one(written, dialect="spark") is not None


def test_a_column_is_taken_before_a_name_of_the_same_query() -> None:
    grouped = text("select day % 2 as day, count(*) n from orders group by day", "day")
    assert grouped.endswith("GROUP BY orders.Day")
    assert text("select amount + 1 as amount from orders where amount > 5", "amount").endswith(
        "WHERE orders.amount > 5"
    )


def test_a_name_of_select_is_read_by_what_follows_it() -> None:
    assert text("select amount + 1 as more, more * 2 as twice from orders", "more") == (
        "SELECT orders.amount + 1 AS more, (orders.amount + 1) * 2 AS twice FROM orders AS orders"
    )


def test_rows_under_a_limit_are_in_an_order_that_leaves_no_choice() -> None:
    assert text("select amount * 2 as twice, day from orders order by day desc, amount limit 3 offset 2") == (
        "SELECT limited.twice AS twice, limited.day AS day FROM (SELECT orders.amount * 2 AS twice, orders.Day AS day,"
        " orders.amount AS order FROM orders AS orders) AS limited"
        " ORDER BY limited.day DESC, limited.order, limited.twice LIMIT 3 OFFSET 2"
    )


@pytest.mark.parametrize("order", ["s", "2", "sum(amount)"])
def test_an_order_names_a_column_of_the_result_by_its_name_its_position_or_its_value(order: str) -> None:
    sql = f"select day, sum(amount) s from orders group by day order by {order} desc limit 1"
    assert text(sql).endswith("ORDER BY limited.s DESC, limited.day LIMIT 1")


@pytest.mark.parametrize(
    ("sql", "written"),
    [
        ("substring(country from 2 for 3)", "substring(customers.country, 2, 3)"),
        ("SUBSTR(country || 'x' from 2)", "substr(customers.country || 'x', 2)"),
        ("substring(country, 2, 3)", "substring(customers.country, 2, 3)"),
    ],
)
def test_a_part_of_a_text_is_taken_by_words_or_commas(sql: str, written: str) -> None:
    assert text(f"select {sql} as part from customers", "part") == (
        f"SELECT {written} AS part FROM customers AS customers"
    )


def test_relations_that_are_read_twice_have_two_aliases() -> None:
    written = text(
        "with o as (select * from orders) select a.day from o a join o b on a.day = b.day and a.amount > b.amount",
        "day",
    )
    assert "orders AS orders" in written and "orders AS orders 2" in written


@pytest.mark.parametrize("alias", ["", "c", "as c"])
def test_for_time_of_is_the_interval_that_has_the_time(alias: str) -> None:
    name = "c" if alias else "customers"
    short = (
        f"select day, country from orders o join customers for time of o.day {alias} on o.customer = {name}.customer"
    )
    long = (
        f"select day, country from orders o join customers {alias} on o.customer = {name}.customer and (o.day >="
        f" {name}.valid_from and (o.day < {name}.valid_to or {name}.valid_to is null))"
    )
    assert text(short, "day") == text(long, "day")


def test_for_time_of_stands_in_a_cte_that_is_read_twice() -> None:
    written = text(
        "with t as (select o.day, c.country from orders o left join customers for time of o.day c using (customer))"
        " select a.day from t a join t b on a.day = b.day",
        "day",
    )
    assert written.count("valid_to IS NULL") == 2


def test_changes_of_relations_that_are_not_read_touch_no_key() -> None:
    made = query("select day from orders", "day")
    assert "WHERE FALSE" in made.affected(("payments",), lambda name: "changes", lambda name: "ever")


def test_what_has_not_changed_is_read_once_and_as_it_is() -> None:
    made = query("select day, sum(paid) p from orders left join payments using (o_id) group by day", "day")
    asked: list[str] = []
    made.affected({"orders"}, lambda name: asked.append(name) or "changes", lambda name: f"ever_{name}")  # type: ignore[func-returns-value]
    assert asked == ["orders"]
    written = made.affected({"orders"}, lambda name: "changes", lambda name: f"ever_{name}")
    assert "ghost" not in written and "ever_orders" not in written


def test_a_key_of_nothing_is_one_key() -> None:
    made = query("select count(*) n from orders")
    assert made.key == ()
    assert f"AS `{GLOBAL}`" in made.affected(made.relations, lambda name: "changes", lambda name: "ever")


def test_a_query_is_a_value() -> None:
    made = query("select day from orders", "day")
    again = query("select day from orders", "day")
    assert made == again and hash(made) == hash(again)
    for other in (pickle.loads(pickle.dumps(made)), copy.copy(made), copy.deepcopy(made)):
        assert other == made
        assert other.text(str) == made.text(str)
    before = made.text(str)
    made.affected(made.relations, lambda name: "changes", lambda name: "ever")
    made.restricted(str, "keys")
    assert made.text(str) == before, "a query is not changed by what is asked of it"


@pytest.mark.parametrize("name", ["", "range(10)"])
def test_a_name_of_a_table_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(BadQuery, match="is no name of a table"):
        query("select day from orders", "day").text(lambda _: name)


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("lake.db.t", "lake.db.t"),
        ("delta.`/a b/c`", "delta.`/a b/c`"),
        ("an odd-name", "`an odd-name`"),
        ("`a``b`.c", "`a``b`.c"),
    ],
)
def test_a_table_is_named_as_spark_names_it(name: str, written: str) -> None:
    assert f"FROM {written} AS `orders`" in query("select day from orders", "day").text(lambda _: name)


def test_declarations_without_queries_do_not_load_the_parser_of_queries() -> None:
    code = "import sys, platform_assets.demo.pipelines.flights; print('streaming.sql.parsing' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "False"


def test_a_key_is_not_passed_on_through_a_column_of_another_type() -> None:
    """Of texts '1' and '01' and the number 1 each text is equal to the number, and none to the other."""
    relations = {"a": ("x",), "b": ("y",), "c": ("z",)}
    sql = "select a.x as k, count(*) as n from a join c on a.x = c.z join b on c.z = b.y group by a.x"
    made = Query.of(sql, relations, ("k",))
    keyed = {each.relation: dict(each.keyed) for each in made.keyed_places.values()}
    assert keyed == {"a": {"x": "k"}, "c": {"z": "k"}}
    assert made.plain_key("c") == {"k": "z"}
    assert made.plain_key("b") == {}


@pytest.mark.parametrize(
    ("joins", "changed", "told"),
    [
        ("join b on a.k = b.k", "b", {"a": [{("a", "k", "b", "k")}]}),
        ("left join b on a.k = b.k join c on c.x = b.x", "c", {"b": [{("b", "x", "c", "x")}]}),
        ("left anti join b on a.k = b.k", "ab", {"a": [{("a", "k", "b", "k")}], "b": [{("b", "k", "a", "k")}]}),
        (
            "join b b1 on a.k = b1.k join b b2 on a.x = b2.x",
            "b",
            {"a": [{("a", "k", "b1", "k")}, {("a", "x", "b2", "x")}]},
        ),
        ("join b on a.k = b.k where exists (select 1 from a o where o.x = b.x)", "b", {}),
        ("join b on a.k = b.k or a.x = b.x", "b", {}),
        ("join b on a.k <= b.k", "b", {}),
        ("full join b on a.k = b.k", "b", {}),
    ],
)
def test_columns_that_must_equal_those_of_changed_rows_are_told(
    joins: str, changed: str, told: dict[str, list[set[tuple[str, str, str, str]]]]
) -> None:
    made = Query.of(f"select a.k from a {joins}", dict.fromkeys("abc", ("k", "x")), ("k",))
    found = {
        relation: [{(each.place, each.column, each.of_place, each.of_column) for each in same} for same in of_places]
        for relation, of_places in made.equalities_of_changes(changed).items()
    }
    assert found == told
