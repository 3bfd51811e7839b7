"""Queries that are not kept right are refused, with the reason, the part in question, and what to write instead."""

from __future__ import annotations

import pickle

import pytest

from streaming.base import BadQuery, DeclarationError
from streaming.sql import Query

RELATIONS = {
    "orders": ("id", "customer", "amount", "day", "at"),
    "customers": ("customer", "country", "valid_from", "valid_to"),
    "payments": ("id", "paid", "day"),
}
HISTORIES = {"customers": ("valid_from", "valid_to")}
DAY = ("day",)
TWO = "select o.day from orders o"

SAYS_TODAY = (
    "customer = 'today'",
    "customer in ('today', 'now')",
    "day >= 'today'",
    "case when customer = 'now' then 'today' else customer end = 'tomorrow'",
    "concat(customer, 'today') <> 'x'",
    "date_format(day, 'yyyy') = 'today'",
    "day > date 'epoch'",
    "day > date '2026-03-01'",
    "cast('today' as string) = customer",
    "exists(split(customer, ','), part -> part = 'today')",
    "to_date(day, 'yyyy') > '2026-03-01' and customer = 'now'",
)
"""Conditions in which a word may be a text, as nothing says that it is compared with a time."""

REFUSED: list[tuple[str, str, tuple[str, ...], str, str]] = [
    ("syntax", "select day frm orders", DAY, "cannot be read", "Spark SQL"),
    ("syntax", "select substring(day for 2) d from orders", DAY, "cannot be read", "Spark SQL"),
    ("syntax", "select substring(day for 2 from 1) d from orders", DAY, "cannot be read", "Spark SQL"),
    ("syntax", "show tables", DAY, "unsupported syntax", "Spark SQL"),
    ("syntax", f"select day, {'(' * 400}1{')' * 400} x from orders", DAY, "nested too deeply", "Spark SQL"),
    ("statement", "drop table orders", DAY, "not one query", "one `select`"),
    ("statement", "select day from orders; select 1", DAY, "not one query", "one `select`"),
    ("statement", "", DAY, "not one query", "one `select`"),
    ("columns", "select from orders", DAY, "no columns", "those that are meant"),
    ("columns", "select day from orders union select id, day from payments", DAY, "1 columns on one", "as many"),
    ("columns", f"{TWO} where (o.id, o.day) in (select id from payments)", DAY, "compares 2 with 1", "as many"),
    ("columns", "with t(a, b) as (select day from orders) select a as day from t", DAY, "2 names to 1", "one to each"),
    (
        "clock",
        "select day from orders where at > current_timestamp",
        DAY,
        "another value each time",
        "column with the time",
    ),
    ("clock", "select day, unix_timestamp() t from orders", DAY, "another value each time", "column with the time"),
    ("clock", "select day, now() t from orders", DAY, "another value each time", "column with the time"),
    *(
        ("clock", f"select day from orders where {condition}", DAY, "another value each time", "column with the time")
        for condition in (
            "day >= date 'today'",
            "day >= date ' Today UTC'",
            "at < timestamp 'now'",
            "day = cast('yesterday' as date)",
            "day = try_cast('tomorrow' as timestamp_ntz)",
            "day < 'today'::date",
            "day < to_date('today')",
            "day < date('today')",
            "at < to_timestamp('now')",
            "at < try_to_timestamp(('now'))",
            "day < date_add('today', 1)",
            "year(day) = year('today')",
            "year(day) = extract(year from 'today')",
            "cast(day as date) >= 'today'",
            "date_trunc('day', at) between 'yesterday' and '2026-03-01'",
            "to_date(day) in ('2026-03-01', 'today')",
            "coalesce(to_date(day), 'today') = '2026-03-01'",
            "case to_date(day) when 'today' then 1 end = 1",
            "case when id = 1 then to_date(day) else 'today' end = '2026-03-01'",
        )
    ),
    ("chance", "select day, sum(amount * rand()) s from orders group by day", DAY, "each time", "xxhash64"),
    ("chance", "select day, uuid() u from orders", DAY, "each time", "xxhash64"),
    ("session", "select day, current_user() u from orders", DAY, "depends on who asks", "Write the value"),
    ("function", "select day, mine(amount) m from orders", DAY, "not known that it gives the same", "('mine',)"),
    ("unit", "select day, date_add(day, 1, at) d from orders", DAY, "takes a unit", "interval"),
    ("any row", "select day, first(amount) f from orders group by day", DAY, "comes first", "min_by"),
    ("any row", "select day, any_value(amount) f from orders group by day", DAY, "comes first", "min_by"),
    ("any row", "select day, listagg(amount, ',') f from orders group by day", DAY, "comes first", "sort_array"),
    (
        "any order",
        "select day, collect_list(amount) f from orders group by day",
        DAY,
        "order",
        "sort_array(collect_list",
    ),
    (
        "sketch",
        "select day, approx_percentile(amount, 0.5) p from orders group by day",
        DAY,
        "order",
        "percentile(...)",
    ),
    ("order", "select day, row_number() over (partition by day) r from orders", DAY, "order of the rows", "order by"),
    ("order", "select day, lag(amount) l from orders", DAY, "function of a window", "over ("),
    ("interval", "select day, at + interval id day t from orders", DAY, "literal length", "make_interval"),
    ("literals", "select day, 'it''s' t from orders", DAY, "as a setting says", "\\'"),
    (
        "key limit",
        "select day, sum(amount) s from orders group by day order by s desc limit 3",
        DAY,
        "rows that a limit leaves",
        "row_number",
    ),
    ("key limit", "select day from (select day from orders order by id limit 3) t", DAY, "limit leaves", "key ()"),
    ("limit", "select day from orders limit 3", (), "whatever rows come first", "order by"),
    ("limit", "select day from orders offset 3", (), "whatever rows come first", "order by"),
    ("limit", "(select day from orders) union all (select day from payments) limit 3", (), "whatever", "order by"),
    ("limit", "select day from orders order by day limit 1 + 2", (), "no number of rows", "whole number"),
    (
        "limit",
        "select day from orders o where amount > (select paid from payments p where p.id = o.id order by paid limit 1)",
        DAY,
        "for each row",
        "max_by",
    ),
    ("order", "select distinct day from orders order by id limit 3", (), "told apart", "Select it"),
    (
        "limit",
        "(select day from orders) union all (select day from payments) order by day limit 3",
        (),
        "several selects",
        "view of its own",
    ),
    ("position", "select day from orders order by 2 limit 3", (), "of no column", "There are 1"),
    (
        "ungrouped",
        "select day, count(*) n from orders group by day order by amount limit 3",
        (),
        "neither",
        "aggregate",
    ),
    ("sample", "select day from orders tablesample (10 percent)", DAY, "other rows each time", "`where`"),
    ("lateral", "select day, x from orders lateral view explode(at) t as x", DAY, "rows of a row", "`Selected`"),
    ("lateral", "select day, explode(at) x from orders", DAY, "rows of a row", "`Selected`"),
    ("lateral", "select o.day from orders o, lateral (select 1) t", DAY, "rows of a row", "`Selected`"),
    ("table function", "select id as day from range(10)", DAY, "makes rows", "Read a table"),
    ("values", "select day from values (1) as v(day)", DAY, "rows of its own", "union all"),
    ("pivot", "select * from orders pivot (sum(amount) for day in (1, 2))", DAY, "back to its rows", "case when"),
    ("time window", "select window(at, '1 hour') w, count(*) n from orders group by 1", ("w",), "rows", "date_trunc"),
    (
        "recursion",
        "with recursive t as (select day from orders) select day from t",
        DAY,
        "reads itself",
        "one view a level",
    ),
    ("grouping sets", "select day, count(*) n from orders group by rollup (day)", DAY, "several ways", "union all"),
    ("grouping sets", "select day, count(*) n from orders group by day with cube", DAY, "several ways", "union all"),
    ("grouping sets", "select day from orders group by grouping sets ((day), ())", DAY, "several ways", "union all"),
    (
        "window name",
        "select day, sum(id) over w s from orders window w as (partition by day)",
        DAY,
        "named? window",
        "over",
    ),
    ("hint", "select /*+ broadcast(orders) */ day from orders", DAY, "has a hint", "Leave the hint out"),
    (
        "qualify",
        "select day from orders qualify row_number() over (partition by day order by id) = 1",
        DAY,
        "",
        "subquery",
    ),
    ("distinct on", "select distinct on (day) day from orders", DAY, "not SQL of Spark", "row_number"),
    ("version", "select day from orders version as of 3", DAY, "an old version", "`of`"),
    ("parameter", "select day from orders where id = :id", DAY, "is a parameter", "Write the value"),
    ("natural join", "select o.day from orders o natural join payments", DAY, "whatever names", "using"),
    (
        "nested join",
        f"{TWO} join customers c join payments p on true on true",
        DAY,
        "join within a join",
        "one after the other",
    ),
    ("by name", "select day from orders union by name select day from payments", DAY, "by name", "one order"),
    ("set operations", f"{TWO} where exists (select 1 union select 2)", DAY, "several selects", "in `from`"),
    (
        "outer join",
        f"{TWO} full join customers c using (customer) left join payments p using (id)",
        DAY,
        "full join beside another join",
        "view of its own",
    ),
    (
        "outer join",
        f"{TWO} join payments p using (id) right join customers c using (customer)",
        DAY,
        "right join",
        "view",
    ),
    ("in", "select day, id in (select id from payments) p from orders", DAY, "may be null", "exists"),
    ("any", f"{TWO} where o.amount > any (select paid from payments)", DAY, "all rows of a subquery", "exists"),
    ("any", f"{TWO} where o.amount > all (select paid from payments)", DAY, "all rows of a subquery", "not exists"),
    (
        "nested",
        f"{TWO} where exists (select 1 from payments p where exists"
        " (select 1 from customers c where c.customer = o.customer and c.country = p.day))",
        DAY,
        "subquery",
        "oin",
    ),
    (
        "nested",
        f"{TWO} where exists (select 1 from payments p where p.id = o.id or exists"
        " (select 1 from customers c where c.country = p.day))",
        DAY,
        "within a subquery",
        "Join one of them",
    ),
    (
        "correlated join",
        f"{TWO} where exists (select 1 from payments p join customers c on c.customer = o.customer)",
        DAY,
        "around",
        "`where`",
    ),
    (
        "clause",
        f"{TWO} join payments p on p.id = (select max(customer) from customers)",
        DAY,
        "cannot stand in `on`",
        "`where`",
    ),
    ("clause", "select day from orders where sum(amount) > 1", DAY, "cannot stand in `where`", "`having`"),
    ("clause", "select count(*) n from orders group by sum(amount)", (), "cannot stand in `group by`", "subquery"),
    ("having", "select day from orders having amount > 1", DAY, "nothing to be about", "`where`"),
    ("ungrouped", "select day, amount, count(*) n from orders group by day", DAY, "neither", "aggregate it"),
    ("ungrouped", "select day, count(*) n from orders group by day having amount > 1", DAY, "neither", "aggregate it"),
    ("position", "select day from orders group by 2", DAY, "of no column", "There are 1"),
    ("star", "select day, count(orders.*) n from orders group by day", DAY, "all columns", "count(*)"),
    ("alias", "select a.day from orders a join payments a on true", DAY, "taken", "another name"),
    ("alias", "select o.day from orders o join payments o on true", DAY, "taken", "another name"),
    ("ambiguous", f"{TWO} join payments p on p.id = o.id where day > 1", DAY, "more than one", "before it"),
    (
        "ambiguous",
        "select id, max(day) day from orders group by id, day having day > 1",
        ("id",),
        "both",
        "another name",
    ),
    ("column", "select dat from orders", DAY, "no column 'dat'. There are: id,", "Correct the name"),
    ("column", "select o.nothing from orders o", DAY, "no column 'o.nothing'", "Correct the name"),
    ("column", "select x.* from orders", DAY, "no relation of this `from`", "alias"),
    ("column", f"{TWO} join payments p using (paid)", DAY, "needs one column 'paid' before the join", "on ..."),
    ("relation", "select day from order", DAY, "no relation 'order'. There are: customers, orders,", "`of`"),
    ("relation", "select day from lake.orders", DAY, "no relation 'lake.orders'", "`of`"),
    ("unnamed", "select day, count(*) from orders group by day", DAY, "has no name", "... as total"),
    ("twice", "select day, id as DAY from orders", DAY, "two columns of the result", "... as another"),
    ("key", "select id from orders", DAY, "the key 'day' is no column", "Select it"),
    ("key", "select day from orders", ("day", "DAY"), "names a column twice", "once"),
    ("key aggregate", "select max(day) as day from orders group by id", DAY, "several rows", "view of its own"),
    (
        "key aggregate",
        "select n, count(*) k from (select day, count(*) n from orders group by day) t group by n",
        ("n",),
        "several rows",
        "view of its own",
    ),
    ("key window", "select rank() over (order by id) day from orders", DAY, "several rows", "view of its own"),
    (
        "key partition",
        "select day, sum(id) over (partition by customer) s from orders",
        DAY,
        "`partition by`",
        "whole key",
    ),
    (
        "key partition",
        "select day from (select day, row_number() over (partition by id order by at) r from orders) t where r = 1",
        DAY,
        "`partition by`",
        "whole key",
    ),
    ("key subquery", "select (select max(p.day) from payments p where p.id = o.id) day from orders o", DAY, "", "Join"),
    (
        "history",
        "select o.day from orders o join payments for time of o.day p on p.id = o.id",
        DAY,
        "is no history",
        "on ...",
    ),
    (
        "history",
        "select valid_from day from customers for time of orders.at",
        DAY,
        "does not stand behind",
        "join customers",
    ),
    ("history", "select o.day from orders o join customers for time of", DAY, "not followed by a column", "orders.at"),
    ("lost", "select day, array('a', 'b')[0] x from orders", DAY, "", ""),
]


@pytest.mark.parametrize(("reason", "sql", "key", "says", "way_out"), REFUSED, ids=lambda each: str(each)[:60])
def test_a_query_is_refused_in_words(reason: str, sql: str, key: tuple[str, ...], says: str, way_out: str) -> None:
    with pytest.raises(BadQuery) as refused:
        Query.of(sql, RELATIONS, key, histories=HISTORIES)
    error = refused.value
    assert error.reason in ((reason,) if reason != "lost" else ("lost", "unknown")), error
    assert says.replace("named?", "names a").lower() in str(error).lower(), error
    assert way_out in error.next_step, error
    assert error.next_step and str(error).endswith(error.next_step)


def test_a_refusal_is_one_of_a_declaration_and_has_its_facts() -> None:
    with pytest.raises(DeclarationError) as refused:
        Query.of("select day from orders limit 3", RELATIONS, ())
    other = pickle.loads(pickle.dumps(refused.value))
    assert other.to_json() == refused.value.to_json()
    assert other.facts == {"reason": "limit", "value": "SELECT day FROM orders LIMIT 3"}


def test_a_function_that_is_declared_deterministic_is_called() -> None:
    sql = "select day, sum(Mine(amount)) m from orders group by day"
    assert Query.of(sql, RELATIONS, DAY, deterministic=("mine",)).columns == ("day", "m")


@pytest.mark.parametrize("condition", SAYS_TODAY)
def test_a_text_that_nothing_makes_a_time_is_taken(condition: str) -> None:
    sql = f"select day from orders where {condition}"
    assert Query.of(sql, RELATIONS, DAY).columns == DAY


@pytest.mark.parametrize(
    "condition",
    [
        "day >= 'today'",
        "'NOW' > o.at",
        "max_day = 'yesterday'",
        "coalesce(day, 'today') is not null",
        "at - interval 1 day < 'now'",
        "customer = 'x' and day in (date '2026-03-01', 'today')",
    ],
)
def test_a_word_beside_a_column_that_is_declared_as_a_time_is_refused(condition: str) -> None:
    sql = f"""
        with o as (select *, greatest(day, date '2026-01-01') as max_day from (select * from orders) t)
        select day from o where {condition}
    """
    with pytest.raises(BadQuery, match="another value each time"):
        Query.of(sql, RELATIONS, DAY, times={"orders": ("day", "at")})
    assert Query.of("select day, customer from orders", RELATIONS, DAY, times={"orders": ("day",)}).times == {"day"}
