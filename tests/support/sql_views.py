"""Queries of many kinds over relations whose rows come and go at random, and DuckDB as the judge of their results."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import duckdb
import pyarrow as pa
import sqlglot

from streaming.sql import Distance, Equality, Query

Row = tuple[Any, ...]
SCHEMA: dict[str, dict[str, str]] = {
    "orders": {"o_id": "int", "c_id": "int", "amount": "int", "day": "int"},
    "customers": {"c_id": "int", "country": "varchar", "tier": "int"},
    "payments": {"o_id": "int", "paid": "int", "day": "int"},
    "grades": {"c_id": "int", "grade": "int", "valid_from": "int", "valid_to": "int"},
}
COLUMNS = {name: tuple(columns) for name, columns in SCHEMA.items()}
HISTORIES = {"grades": ("valid_from", "valid_to")}
EVER, CHANGES, ADDED = "_ever", "_changes", "_added"

CLASSES: dict[str, tuple[str, tuple[str, ...]]] = {
    "group by": ("select day, count(*) n, sum(amount) s from orders group by day", ("day",)),
    "where": ("select day, min(amount) m, max(amount) x from orders where amount > 5 group by day", ("day",)),
    "expression key": ("select day div 2 as half, count(distinct c_id) n from orders group by day div 2", ("half",)),
    "expression of what is grouped": ("select day + 1 as next, sum(amount) s from orders group by day", ("next",)),
    "group by position": ("select c_id, day, count(*) n from orders group by 1, 2", ("day", "c_id")),
    "group by a name": ("select day % 2 as parity, count(*) n from orders group by parity", ("parity",)),
    "group by all": ("select day, c_id, max(amount) m from orders group by all", ("c_id",)),
    "a name read in select": ("select day + 1 as d, d * 2 as e, amount from orders", ("e",)),
    "filter of an aggregate": (
        "select day, count(*) filter (where amount > 4) n, sum(amount) filter (where c_id is null) s"
        " from orders group by day",
        ("day",),
    ),
    "inner join": (
        "select c.country, o.day, sum(o.amount) s from orders o join customers c using (c_id)"
        " group by c.country, o.day",
        ("country", "day"),
    ),
    "left join": (
        "select c.country, o.day, count(*) n, sum(o.amount) s from orders o left join customers c on o.c_id = c.c_id"
        " group by c.country, o.day",
        ("country", "day"),
    ),
    "right join": (
        "select c.country, o.day, count(*) n from customers c right join orders o on o.c_id = c.c_id"
        " group by c.country, o.day",
        ("country", "day"),
    ),
    "full join": (
        "select coalesce(o.day, -1) d, c.country, count(*) n from orders o full join customers c on o.c_id = c.c_id"
        " group by coalesce(o.day, -1), c.country",
        ("d", "country"),
    ),
    "full join, condition": (
        "select o.day, c.country, count(*) n from orders o full join customers c on o.c_id = c.c_id and o.amount > 4"
        " and c.tier > 0 group by o.day, c.country",
        ("day", "country"),
    ),
    "full join, using": (
        "select c_id, count(o.o_id) n, count(tier) m from orders o full join customers c using (c_id) group by c_id",
        ("c_id",),
    ),
    "full join of aggregates": (
        "select a.day, b.day as other, a.s, b.p from (select day, sum(amount) s from orders group by day having"
        " count(*) < 3) a full join (select day, sum(paid) p from payments group by day) b on a.day = b.day"
        " and a.s > b.p",
        ("day", "other"),
    ),
    "left join, condition": (
        "select o.day, count(c.c_id) n, count(*) m from orders o left join customers c on o.c_id = c.c_id"
        " and c.tier > 1 group by o.day",
        ("day",),
    ),
    "three inner": (
        "select c.country, sum(p.paid) s from orders o join customers c on o.c_id = c.c_id join payments p"
        " on p.o_id = o.o_id group by c.country",
        ("country",),
    ),
    "three left": (
        "select c.country, o.day, sum(p.paid) s, count(*) n from orders o left join customers c on o.c_id = c.c_id"
        " left join payments p on p.o_id = o.o_id group by c.country, o.day",
        ("country", "day"),
    ),
    "three left, a key of each": (
        "select c.country, p.day, count(*) n from orders o left join customers c on o.c_id = c.c_id"
        " left join payments p on p.o_id = o.o_id group by c.country, p.day",
        ("country", "day"),
    ),
    "three chained left": (
        "select o.day, c.tier, p.day pd, count(*) n from orders o left join customers c on o.c_id = c.c_id"
        " left join payments p on p.o_id = o.o_id and p.paid > c.tier group by o.day, c.tier, p.day",
        ("day", "tier", "pd"),
    ),
    "left, then inner": (
        "select c.country, p.day, count(*) n from orders o left join customers c on o.c_id = c.c_id"
        " join payments p on p.o_id = o.o_id and p.paid > coalesce(c.tier, 1) group by c.country, p.day",
        ("country", "day"),
    ),
    "left, then anti by null": (
        "select o.day, count(*) n from orders o left join payments p on p.o_id = o.o_id where p.o_id is null"
        " group by o.day",
        ("day",),
    ),
    "self join": (
        "select a.day, count(*) n from orders a join orders b on a.c_id = b.c_id and a.day = b.day + 1 group by a.day",
        ("day",),
    ),
    "self left join": (
        "select a.day, b.day bd, count(*) n from orders a left join orders b on a.c_id = b.c_id and a.day = b.day + 1"
        " group by a.day, b.day",
        ("day", "bd"),
    ),
    "distinct": ("select distinct day, c_id from orders where amount > 3", ("day",)),
    "having": ("select c_id, sum(amount) s from orders group by c_id having sum(amount) > 12", ("c_id",)),
    "one group by having alone": (
        "select c.c_id, c.tier from customers c cross join"
        " (select 1 as one from payments where paid > 99 having count(*) = 0) s",
        ("c_id",),
    ),
    "one group by having alone, joined": (
        "select o.o_id, o.amount from orders o"
        " join (select 3 as one from payments where paid > 99 having count(*) = 0) s on o.amount = s.one",
        ("o_id",),
    ),
    "having by name": ("select c_id, count(*) n from orders group by c_id having n between 1 and 2", ("c_id",)),
    "no aggregate": (
        "select o.o_id, o.amount, c.country from orders o join customers c on o.c_id = c.c_id",
        ("o_id",),
    ),
    "all columns": ("select * from orders join customers using (c_id)", ("country", "c_id")),
    "window": (
        "select c_id, o_id, amount, row_number() over (partition by c_id order by amount, o_id, day) r,"
        " sum(amount) over (partition by c_id order by day, o_id, amount) run from orders",
        ("c_id",),
    ),
    "windows, finer ones": (
        "select c_id, day, o_id, lag(amount) over (partition by c_id, day order by o_id, amount) before,"
        " count(*) over (partition by day, c_id) n from orders",
        ("day",),
    ),
    "window over an aggregate": (
        "select day, c_id, rank() over (partition by day order by sum(amount) desc) r from orders group by day, c_id",
        ("day",),
    ),
    "top n per key": (
        "select c_id, o_id, amount from (select c_id, o_id, amount, row_number() over (partition by c_id"
        " order by amount desc, o_id, day) r from orders) t where r <= 2",
        ("c_id",),
    ),
    "top n finer than the key": (
        "select day, o_id from (select day, c_id, o_id, row_number() over (partition by day, c_id"
        " order by amount desc, o_id) r from orders) t where r = 1",
        ("day",),
    ),
    "window, then joined": (
        "select t.c_id, c.country, t.o_id from (select c_id, o_id, row_number() over (partition by c_id"
        " order by day, o_id, amount) r from orders) t left join customers c on c.c_id = t.c_id and c.tier >= t.r",
        ("c_id",),
    ),
    "union all": ("select day, amount v from orders union all select day, -paid from payments", ("day",)),
    "union": ("select day, amount v from orders union select day, paid from payments", ("day",)),
    "union all, grouped": (
        "select day, sum(v) s from (select day, amount v from orders union all select day, -paid from payments) u"
        " group by day",
        ("day",),
    ),
    "union of aggregates": (
        "select day, count(*) n from orders group by day union all select c.tier, sum(o.amount) from orders o"
        " join customers c on c.c_id = o.c_id group by c.tier having count(*) < 3",
        ("day",),
    ),
    "except": ("select day, o_id from orders except select day, o_id from payments", ("day",)),
    "except all": ("select day from orders except all select day from payments", ("day",)),
    "intersect": ("select day, o_id from orders intersect select day, o_id from payments", ("day",)),
    "intersect binds more than union": (
        "select day from orders union all select day from payments intersect select tier from customers",
        ("day",),
    ),
    "joined with an except": (
        "select t.c_id, c.country from (select c_id from orders except select c_id from customers where tier = 1) t"
        " left join customers c on c.c_id = t.c_id",
        ("country", "c_id"),
    ),
    "exists": (
        "select o.day, count(*) n from orders o where exists (select 1 from payments p where p.o_id = o.o_id"
        " and p.paid > 3) group by o.day",
        ("day",),
    ),
    "not exists": (
        "select o.day, count(*) n from orders o where not exists (select 1 from payments p where p.o_id = o.o_id)"
        " group by o.day",
        ("day",),
    ),
    "exists or": (
        "select o.day, count(*) n from orders o where o.amount > 8 or exists (select 1 from payments p"
        " where p.o_id = o.o_id) group by o.day",
        ("day",),
    ),
    "two exists": (
        "select o.day, count(*) n from orders o where exists (select 1 from payments p where p.o_id = o.o_id)"
        " and not exists (select 1 from customers c where c.c_id = o.c_id and c.tier > 1) group by o.day",
        ("day",),
    ),
    "exists of an aggregate": (
        "select c.country, c.c_id from customers c where exists (select 1 from orders o where o.c_id = c.c_id"
        " group by o.day having sum(o.amount) < 6)",
        ("c_id",),
    ),
    "exists of a join": (
        "select c.country, count(*) n from customers c where exists (select 1 from orders o join payments p"
        " on p.o_id = o.o_id where o.c_id = c.c_id and p.paid > c.tier) group by c.country",
        ("country",),
    ),
    "exists within exists": (
        "select c.c_id, count(*) n from customers c where exists (select 1 from orders o where o.c_id = c.c_id"
        " and not exists (select 1 from payments p where p.o_id = o.o_id)) group by c.c_id",
        ("c_id",),
    ),
    "in": (
        "select o.day, count(*) n from orders o where o.c_id in (select c_id from customers where tier = 1)"
        " group by o.day",
        ("day",),
    ),
    "in of pairs": (
        "select o.day, o.amount from orders o where (o.o_id, o.day) in (select o_id, day from payments)",
        ("day",),
    ),
    "not in": (
        "select o.day, count(*) n from orders o where o.c_id not in (select c_id from customers where tier = 1)"
        " group by o.day",
        ("day",),
    ),
    "not in, correlated": (
        "select o.day, o.amount from orders o where (o.day = 3 or o.amount not in (select p.paid from payments p"
        " where p.o_id = o.o_id))",
        ("amount",),
    ),
    "not in the groups": (
        "select o.c_id, o.amount from orders o where not (o.o_id in (select o_id from payments group by o_id"
        " having sum(paid) > 3))",
        ("c_id",),
    ),
    "semi join": (
        "select o.day, count(*) n from orders o left semi join customers c on o.c_id = c.c_id and c.tier > 0"
        " group by o.day",
        ("day",),
    ),
    "anti join": (
        "select c.country, count(*) n from orders o left anti join payments p on p.o_id = o.o_id"
        " left join customers c on c.c_id = o.c_id group by c.country",
        ("country",),
    ),
    "correlated scalar": (
        "select o.c_id, o.o_id, (select sum(p.paid) from payments p where p.o_id = o.o_id) paid from orders o",
        ("c_id",),
    ),
    "correlated scalar in where": (
        "select o.day, count(*) n from orders o where o.amount > (select coalesce(sum(p.paid), 0) from payments p"
        " where p.o_id = o.o_id) group by o.day",
        ("day",),
    ),
    "correlated scalar in having": (
        "select o.c_id, sum(o.amount) s from orders o group by o.c_id having sum(o.amount) >"
        " (select coalesce(max(c.tier), 0) from customers c where c.c_id = o.c_id)",
        ("c_id",),
    ),
    "scalar of no row": (
        "select o.day, o.amount from orders o where o.amount > (select avg(p.paid) from payments p where p.day > 0)",
        ("day",),
    ),
    "scalar of no row, of itself": (
        "with sums as (select c_id, sum(amount) s from orders group by c_id) select c.country, sums.s from sums"
        " join customers c on c.c_id = sums.c_id where sums.s = (select max(s) from sums)",
        ("country",),
    ),
    "scalar of no row in having": (
        "select o.c_id, sum(o.amount) s from orders o group by o.c_id having sum(o.amount) * 3 >"
        " (select sum(amount) from orders)",
        ("c_id",),
    ),
    "scalar of no row in select": (
        "select o.day, o.amount * 100 > (select sum(paid) from payments) more from orders o",
        ("day",),
    ),
    "exists of no row": (
        "select o.day, count(*) n from orders o where not exists (select 1 from payments p where p.paid = 7)"
        " group by o.day",
        ("day",),
    ),
    "nested aggregates": (
        "select day, max(s) top, count(*) n from (select day, c_id, sum(amount) s from orders group by day, c_id) t"
        " where s > 5 group by day",
        ("day",),
    ),
    "aggregates under a limit, joined": (
        "select a.o_id, a.s, b.p from (select o_id, sum(amount) s from orders group by o_id having sum(amount) < 7) a"
        " join (select o_id, sum(paid) p from payments group by o_id having sum(paid) < 7) b on a.o_id = b.o_id",
        ("o_id",),
    ),
    "cte joined": (
        "with paid as (select o_id, sum(paid) p from payments group by o_id having sum(paid) > 4)"
        " select c.country, count(*) n, sum(paid.p) s from orders o join paid on paid.o_id = o.o_id"
        " join customers c on c.c_id = o.c_id group by c.country",
        ("country",),
    ),
    "cte read twice": (
        "with daily as (select day, c_id, sum(amount) s from orders group by day, c_id), big as"
        " (select * from daily where s > 4) select a.day, a.c_id, b.s as before from big a left join daily b"
        " on b.c_id = a.c_id and b.day = a.day - 1",
        ("day", "c_id"),
    ),
    "left join an aggregate": (
        "select o.day, count(*) n, sum(t.p) s from orders o left join (select o_id, sum(paid) p from payments"
        " group by o_id) t on t.o_id = o.o_id where coalesce(t.p, 0) < o.amount group by o.day",
        ("day",),
    ),
    "left join an aggregate, a key of it": (
        "select t.last, count(*) n from orders o left join (select o_id, day as last, sum(paid) p from payments"
        " group by o_id, day) t on t.o_id = o.o_id group by t.last",
        ("last",),
    ),
    "left join by an aggregate": (
        "select t.c_id, c.country, t.n from (select c_id, count(*) n from orders group by c_id) t"
        " left join customers c on c.c_id = t.c_id and c.tier = t.n",
        ("country", "c_id"),
    ),
    "left join a left join": (
        "select c.country, t.day, count(*) n from customers c left join (select o.c_id, p.day from orders o"
        " left join payments p on p.o_id = o.o_id and p.paid > 2) t on t.c_id = c.c_id group by c.country, t.day",
        ("country", "day"),
    ),
    "cross join": (
        "select c.country, count(*) n from orders o cross join customers c where o.day = c.tier group by c.country",
        ("country",),
    ),
    "joined by commas": (
        "select c.country, p.day, count(*) n from orders o, customers c, payments p where o.c_id = c.c_id"
        " and p.o_id = o.o_id group by c.country, p.day",
        ("country", "day"),
    ),
    "cross join of one row": (
        "select o.day, count(*) n, max(t.top) top from orders o cross join (select max(amount) top, count(*) k"
        " from orders) t where o.amount * 2 > coalesce(t.top, 0) group by o.day",
        ("day",),
    ),
    "limit": (
        "select c_id, sum(amount) s from orders group by c_id order by sum(amount) desc, min(day) limit 2",
        (),
    ),
    "limit, offset and rows that tie": ("select day, o_id from orders order by day desc limit 3 offset 1", ()),
    "limited rows, chosen and joined": (
        "select t.o_id, c.country from (select distinct o_id, c_id, amount from orders order by amount desc limit 3) t"
        " left join customers c on c.c_id = t.c_id where t.amount < 8",
        (),
    ),
    "joined with limited rows": (
        "select o.day, count(*) n from orders o join (select c_id from customers order by tier desc limit 2) t"
        " on t.c_id = o.c_id group by o.day",
        ("day",),
    ),
    "in limited rows": (
        "select o.day, o.amount from orders o where o.o_id in (select o_id from payments where day > 0"
        " order by paid desc limit 2)",
        ("day",),
    ),
    "limited scalar": (
        "select o.day, o.amount from orders o where o.amount > (select paid from payments order by day desc limit 1)",
        ("day",),
    ),
    "coarser key": ("select day, c_id, sum(amount) s from orders group by day, c_id", ("day",)),
    "global": ("select count(*) n, sum(amount) s from orders where amount > 2", ()),
    "global, all rows": ("select o_id, rank() over (order by amount, o_id) r from orders", ()),
    "interval join": (
        "select g.grade, count(*) n, sum(o.amount) s from orders o join grades g on o.c_id = g.c_id"
        " and o.day >= g.valid_from and (o.day < g.valid_to or g.valid_to is null) group by g.grade",
        ("grade",),
    ),
    "near in time": (
        "select o.o_id, o.day, count(*) n, sum(p.paid) s from orders o join payments p"
        " on p.day between o.day - 1 and o.day + 1 group by o.o_id, o.day",
        ("o_id",),
    ),
    "near in time, left": (
        "select o.o_id, c.country, p.paid from orders o join customers c on o.c_id = c.c_id"
        " left join payments p on p.day >= o.day and p.day - 2 < o.day and p.paid > c.tier",
        ("o_id",),
    ),
    "near in time, in a chain": (
        "select a.o_id, b.o_id as next, p.paid from orders a, orders b left join payments p on p.day = b.day + 1"
        " where b.day > a.day and b.day <= a.day + 2 and a.amount < b.amount",
        ("o_id",),
    ),
    "near in time, by what may be missing": (
        "select o.o_id, c.country, p.paid from orders o join customers c on o.amount >= c.tier"
        " left join payments p on p.day = o.day and p.day = c.tier",
        ("o_id",),
    ),
    "near in time, semi": (
        "select o.day, o.amount from orders o left semi join payments p on p.day >= o.day - 1 and p.day <= o.day",
        ("day", "amount"),
    ),
    "near in time, anti": (
        "select o.day, o.amount from orders o left anti join payments p on p.day >= o.day - 1 and p.day <= o.day",
        ("day", "amount"),
    ),
    "for time of": (
        "select g.grade, o.day, count(*) n from orders o join grades for time of o.day g on o.c_id = g.c_id"
        " group by g.grade, o.day",
        ("grade", "day"),
    ),
    "left join for time of": (
        "select grade, c.country, count(*) n from orders o left join grades for time of o.day using (c_id)"
        " left join customers c on c.c_id = o.c_id group by grade, c.country",
        ("grade", "country"),
    ),
}
"""Queries by what is special about them, with their keys."""


def spark_to_duckdb(sql: str) -> str:
    """The SQL in DuckDB's dialect."""
    (text,) = sqlglot.transpile(sql, read="spark", write="duckdb")
    return text


@cache
def query_of(name: str) -> Query:
    """The query of a class, analysed."""
    sql, key = CLASSES[name]
    return Query.of(sql, COLUMNS, key, histories=HISTORIES)


@dataclass
class Feed:
    """Rows that come and go at the steps 1, 2, ...; those of step 0 are there from the begin."""

    rows: dict[str, list[tuple[Row, int, int | None]]] = field(default_factory=lambda: {name: [] for name in SCHEMA})
    """The rows of each relation, with the step at which each is added and the one at which it is taken back."""

    def at(self, relation: str, step: int) -> list[Row]:
        """The rows that stand after a step."""
        return [row for row, begin, end in self.rows[relation] if begin <= step and (end is None or end > step)]

    def changed(self, step: int) -> frozenset[str]:
        """The relations of which rows come or go at a step."""
        return frozenset(name for name, rows in self.rows.items() if any(step in row[1:] for row in rows))

    def add(self, relation: str, row: Row, step: int) -> None:
        """A row that comes at a step."""
        self.rows[relation].append((row, step, None))

    def take_back(self, relation: str, at: int, step: int) -> Row:
        """A row that goes at a step, by its place in `rows`."""
        row, begin, _ = self.rows[relation][at]
        self.rows[relation][at] = (row, begin, step)
        return row

    def follow(self, relation: str, before: Counter[Row], after: Counter[Row], step: int) -> None:
        """Rows that come and go at a step, as those of a relation that is a view."""
        for row in (before - after).elements():
            places = self.standing(relation, step)
            self.take_back(relation, next(at for at in places if self.rows[relation][at][0] == row), step)
        for row in (after - before).elements():
            self.add(relation, row, step)

    def standing(self, relation: str, step: int) -> list[int]:
        """The places of the rows that stand and did not come at this step."""
        rows = enumerate(self.rows[relation])
        return [at for at, (_, begin, end) in rows if begin < step and end is None]


def random_row(draws: random.Random, relation: str) -> Row:
    """A row with few different values, some of them null."""

    def number(below: int, nulls: float = 0.12) -> int | None:
        return None if draws.random() < nulls else draws.randrange(below)

    if relation == "orders":
        return number(9, 0.02), number(5), draws.randrange(10), number(4, 0.06)
    if relation == "customers":
        return number(5, 0.06), draws.choice(["de", "fr", "it", None]), draws.randrange(4)
    if relation == "payments":
        return number(9, 0.06), draws.randrange(8), number(4, 0.06)
    begin = draws.randrange(4)
    return number(5, 0.06), draws.randrange(3), begin, draws.choice([None, begin + 1, begin + 2])


def random_feed(draws: random.Random, steps: int, changed: Sequence[str] = tuple(SCHEMA)) -> Feed:
    """Some rows, and steps at which some are added, replaced or taken back, at times with those that they join."""
    feed = Feed()
    for relation in SCHEMA:
        for _ in range(draws.randrange(0, 12)):
            feed.add(relation, random_row(draws, relation), 0)
    for step in range(1, steps + 1):
        if draws.random() < 0.5:
            _change_together(draws, feed, step, changed)
        for relation in changed:
            for _ in range(draws.choice([0, 1, 1, 2])):
                _change(draws, feed, relation, step)
    return feed


def _change(draws: random.Random, feed: Feed, relation: str, step: int) -> None:
    places = feed.standing(relation, step)
    row = random_row(draws, relation)
    if places and draws.random() < 0.6:
        old = feed.take_back(relation, draws.choice(places), step)
        if draws.random() < 0.4:
            return
        column = draws.randrange(len(old))
        row = (*old[:column], row[column], *old[column + 1 :])
    feed.add(relation, row, step)


def _change_together(draws: random.Random, feed: Feed, step: int, changed: Sequence[str]) -> None:
    """Take back, or add, an order with its customers and payments."""
    places = feed.standing("orders", step)
    if not places:
        return
    at = draws.choice(places)
    o_id, c_id = feed.rows["orders"][at][0][:2]
    for relation, value in (("customers", c_id), ("payments", o_id), ("grades", c_id)):
        for place in feed.standing(relation, step):
            if relation in changed and feed.rows[relation][place][0][0] == value and draws.random() < 0.8:
                row = feed.take_back(relation, place, step)
                if draws.random() < 0.3:
                    other = random_row(draws, relation)
                    feed.add(relation, (row[0], *other[1:]), step)
    if "orders" in changed and draws.random() < 0.5:
        feed.take_back("orders", at, step)


class Judge:
    """A database with the rows of a feed at any of its steps."""

    def __init__(self, schema: Mapping[str, Mapping[str, str]] = SCHEMA) -> None:
        self._database = duckdb.connect()
        self._database.execute("set threads = 1")
        self._database.execute("set variable step = 0")
        self._schema = schema
        for relation, columns in schema.items():
            names = ", ".join(columns)
            typed = ", ".join(f"{name} {type_}" for name, type_ in columns.items())
            self._database.execute(f"create table {relation}_rows ({typed}, begins int, ends int)")
            step = "getvariable('step')"
            stands = f"begins <= {step} and (ends is null or ends > {step})"
            is_new, is_gone = f"(begins = {step} and {stands})", f"(ends = {step} and begins < {step})"
            for suffix, condition in {
                "": stands,
                EVER: f"({stands}) or {is_gone}",
                CHANGES: f"{is_new} or {is_gone}",
                ADDED: is_new,
            }.items():
                self._database.execute(
                    f"create view {relation}{suffix} as select {names} from {relation}_rows where {condition}"
                )

    def load(self, feed: Feed) -> None:
        """Take the rows of another feed."""
        for relation, columns in self._schema.items():
            rows = [(*row, begin, end) for row, begin, end in feed.rows[relation]]
            self._database.execute(f"delete from {relation}_rows")
            if rows:
                values = [pa.array(column) for column in zip(*rows, strict=True)]
                self._database.register("loaded", pa.table(values, [*columns, "begins", "ends"]))
                self._database.execute(f"insert into {relation}_rows from loaded")

    def move_to(self, step: int) -> None:
        """Go to a step."""
        self._database.execute(f"set variable step = {step}")

    def rows(self, sql: str) -> Counter[Row]:
        """The rows of a query in DuckDB's SQL, with how often each is there."""
        return Counter(self._database.execute(sql).fetchall())

    def save(self, name: str, sql: str) -> Counter[Row]:
        """Make a table of the rows of a query."""
        self._database.execute(f"create or replace table {name} as {sql}")
        return self.rows(f"from {name}")


def is_number(relation: str, column: str) -> bool:
    """True for a column whose distances from others are numbers."""
    return SCHEMA[relation][column] == "int"


def within(distances: Sequence[Distance], near: Mapping[str, str]) -> list[str]:
    """The conditions, in DuckDB's SQL, that a row `r` is so far as it may be from rows in tables by place."""
    return [
        f'r."{each.column}" {sign} (select {which}("{each.of_column}") from {near[each.of_place]}) + {bound}'
        for each in distances
        for sign, which, bound in ((">=", "min", each.least), ("<=", "max", each.greatest))
        if each.of_place in near and bound is not None
    ]


@dataclass
class Incremental:
    """A query whose result is replaced by affected keys alone.

    Another suffix in place of `ever` or `changes` makes it wrong, on purpose.
    """

    query: Query
    ever: str = EVER
    changes: str = CHANGES
    touched: int = 0
    """How many keys were replaced, in all steps."""
    _affected: dict[frozenset[str], str] = field(default_factory=dict)
    _affected_near: dict[frozenset[str], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.text = spark_to_duckdb(self.query.text(lambda name: name))
        self._key = [self.query.columns.index(column) for column in self.query.key]

    def affected(self, changed: Collection[str]) -> str:
        """The SQL for affected keys, in DuckDB's dialect."""
        known = frozenset(changed) & {*self.query.relations}
        if known not in self._affected:
            sql = self.query.affected(known, lambda name: name + self.changes, lambda name: name + self.ever)
            self._affected[known] = spark_to_duckdb(sql)
        return self._affected[known]

    def key_of(self, row: Row) -> Row:
        """The key of a row of the result."""
        return tuple(row[at] for at in self._key)

    @cached_property
    def restricted(self) -> str:
        """The SQL for the rows of the keys in a table `touched`, in DuckDB's dialect."""
        return spark_to_duckdb(self.query.restricted(lambda name: name, "touched"))

    def restricted_near(self, judge: Judge, keys: str) -> str:
        """The SQL for the rows of the keys in a table, read where that is told from tables of what these need alone."""
        near, are_whole = dict[str, str](), False
        distances, keyed_places = self.query.distances(is_number), self.query.keyed_places
        for number, (place, relation) in enumerate(
            sorted(self.query.places.items(), key=lambda each: each[0] not in keyed_places)
        ):
            asked = within([each for each in distances if each.place == place and each.of_place in keyed_places], near)
            read = ", ".join(f'r."{name}"' for name in COLUMNS[relation])
            if keyed := keyed_places.get(place):
                same = (f'r."{name}" is not distinct from k."{column}"' for name, column in keyed.keyed.items())
                asked.append(f"exists (from {keys} k where {' and '.join(same)})")
                read = ", ".join(f'r."{name}"' for name in keyed.columns)
                are_whole |= {*keyed.keyed.values()} == {*self.query.key}
            if asked:
                near[place] = f"near_{number}"
                judge.save(near[place], f"select {read} from {relation} r where {' and '.join(asked)}")
        return spark_to_duckdb(self.query.restricted(lambda name: name, "" if are_whole else keys, near=near))

    def affected_near(self, changed: Collection[str]) -> str:
        """The SQL for affected keys by no more rows of other relations than are near the changed ones; "" for all."""
        known = frozenset(changed) & {*self.query.relations}
        if known not in self._affected_near:
            conditions: dict[str, list[str]] = {}
            for relation, of_places in self.query.distances_of_changes(known, is_number).items():
                changes = {
                    each.of_place: f"{self.query.places[each.of_place]}{self.changes}" for (each, *_) in of_places
                }
                asked = " or ".join(f"({' and '.join(within(distances, changes))})" for distances in of_places)
                conditions.setdefault(relation, []).append(f"({asked})")
            for relation, equal in self.query.equalities_of_changes(known).items():
                same = [[each for each in of_place if self._is_of_one_type(each)] for of_place in equal]
                if all(same):
                    conditions.setdefault(relation, []).append(f"({' or '.join(map(self._has_partner, same))})")
            near = {
                relation: f"near_{relation} as (select * from {relation}{self.ever} r where {' and '.join(asked)})"
                for relation, asked in conditions.items()
            }
            ever: Callable[[str], str] = lambda name: f"near_{name}" if name in near else name + self.ever  # noqa: E731
            sql = self.query.affected(known, lambda name: name + self.changes, ever) if near else ""
            self._affected_near[known] = sql and f"with {', '.join(near.values())} {spark_to_duckdb(sql)}"
        return self._affected_near[known]

    def _is_of_one_type(self, same: Equality) -> bool:
        places = self.query.places
        return SCHEMA[places[same.place]][same.column] == SCHEMA[places[same.of_place]][same.of_column]

    def _has_partner(self, same: Sequence[Equality]) -> str:
        """The condition, in DuckDB's SQL, that a row `r` has the columns of one of the changed rows of a place."""
        equal = " and ".join(f'r."{each.column}" = c."{each.of_column}"' for each in same)
        return f"exists (from {self.query.places[same[0].of_place]}{self.changes} c where {equal})"

    def plainly_affected(self, changed: Collection[str]) -> str:
        """The SQL for the keys that changed rows have themselves; "" where they do not have whole ones."""
        read = [relation for relation in self.query.relations if relation in changed]
        plain = {relation: self.query.plain_key(relation) for relation in read}
        if not read or not all(plain.values()):
            return ""
        parts = (
            f"select {', '.join(f'{columns[key]}' for key in self.query.key)} from {relation}{self.changes}"
            for relation, columns in plain.items()
        )
        return " union ".join(parts)

    def step(self, before: Counter[Row], computed: Counter[Row], keys: Counter[Row]) -> Counter[Row]:
        """The result of a step: the rows of affected keys computed again, all others as they were."""
        is_touched: Callable[[Row], bool] = lambda row: (self.key_of(row) if self._key else (1,)) in keys  # noqa: E731
        stays = {row: number for row, number in before.items() if not is_touched(row)}
        return Counter(stays) + Counter({row: number for row, number in computed.items() if is_touched(row)})


def wrong_steps(incremental: Incremental, judge: Judge, feed: Feed, steps: int) -> Iterator[tuple[int, bool]]:
    """Each step of a feed that is loaded, and whether the result is another one than that computed anew."""
    judge.move_to(0)
    before = judge.rows(incremental.text)
    for step in range(1, steps + 1):
        judge.move_to(step)
        computed = judge.rows(incremental.text)
        keys = judge.rows(incremental.affected(feed.changed(step)))
        incremental.touched += len(keys)
        is_wrong = incremental.step(before, computed, keys) != computed
        if plain := incremental.plainly_affected(feed.changed(step)):
            is_wrong |= incremental.step(before, computed, judge.rows(plain)) != computed
        if near := incremental.affected_near(feed.changed(step)):
            is_wrong |= incremental.step(before, computed, judge.rows(near)) != computed
        yield step, is_wrong
        before = computed


def kept_steps(incremental: Incremental, judge: Judge, feed: Feed, steps: int) -> Iterator[Counter[Row]]:
    """The result at the begin of a feed that is loaded, and after each step, which computes touched keys alone."""
    judge.move_to(0)
    kept = judge.rows(incremental.text)
    yield kept
    for step in range(1, steps + 1):
        judge.move_to(step)
        keys = judge.save("touched", incremental.affected(feed.changed(step)))
        incremental.touched += len(keys)
        kept = incremental.step(kept, judge.rows(incremental.restricted), keys)
        yield kept
