"""TPC-H as views: after each refresh a result of which only touched keys are computed is what DuckDB computes anew.

DuckDB reads the text of the specification; a view has that text too, or the one that stands in its file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import pairwise

import pytest

from streaming.base import BadQuery
from streaming.sql import Query
from tests.support.sql_views import ADDED, Feed, Incremental, Judge, Row, kept_steps
from tests.support.tpch import (
    KEYS,
    NATIONS,
    ORDERS_OF_CUSTOMERS,
    REGIONS,
    ROWS,
    SCHEMA,
    query_files,
    specified,
    tpch,
)

STEPS = 10
ALL = {**SCHEMA, ORDERS_OF_CUSTOMERS: {"c_custkey": "bigint", "c_count": "bigint"}}
RELATIONS = {table: tuple(columns) for table, columns in ALL.items()}
FILES = query_files()
SEEDS = [pytest.param(seed, marks=[pytest.mark.long] * (seed > 3)) for seed in (2, 3, 4, 5, 6, 7, 9, 10)]
"""Those of which some refresh changes each result."""


@cache
def query_of(name: str) -> Query:
    return Query.of(FILES[name].sql, RELATIONS, FILES[name].key)


@cache
def refreshed(seed: int) -> tuple[Judge, Feed]:
    """A database with the population and refreshes of a seed, and with the rows of the view that another reads."""
    judge, feed = Judge(ALL), tpch(seed, STEPS)
    feed.rows[ORDERS_OF_CUSTOMERS] = []
    judge.load(feed)
    before: Counter[Row] = Counter()
    for step in range(STEPS + 1):
        judge.move_to(step)
        after = judge.rows(specified(ORDERS_OF_CUSTOMERS))
        feed.follow(ORDERS_OF_CUSTOMERS, before, after, step)
        before = after
    judge.load(feed)
    return judge, feed


def computed(judge: Judge, sql: str) -> list[Counter[Row]]:
    """The result of a query in DuckDB's SQL at the begin and after each step."""
    results = []
    for step in range(STEPS + 1):
        judge.move_to(step)
        results.append(judge.rows(sql))
    return results


def test_all_22_queries_are_here_and_one_reads_a_view_of_its_own() -> None:
    assert [*FILES] == sorted([*(f"q{number:02}" for number in range(1, 23)), ORDERS_OF_CUSTOMERS])
    assert [name for name in FILES if specified(name) != FILES[name].sql] == ["q13"]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", FILES)
def test_a_result_is_what_is_computed_anew_after_each_refresh(name: str, seed: int) -> None:
    judge, feed = refreshed(seed)
    wanted = computed(judge, specified(name))
    assert wanted[0], "a query without a row shows nothing"
    assert any(before != after for before, after in pairwise(wanted)), "no refresh changes it"
    kept = kept_steps(Incremental(query_of(name)), judge, feed, STEPS)
    assert [step for step, (one, other) in enumerate(zip(kept, wanted, strict=True)) if one != other] == []


@pytest.mark.parametrize(("name", "limit"), [("q02", 5), ("q03", 10), ("q10", 20), ("q18", 5), ("q21", 1)])
def test_first_rows_by_limit_are_those_that_are_computed_anew(name: str, limit: int) -> None:
    """Of these queries the specification asks for the first rows, though its text has no word for it."""
    judge, feed = refreshed(2)
    limited = f"{specified(name)} limit {limit}"
    wanted = computed(judge, limited)
    assert wanted != computed(judge, specified(name)), "the limit leaves all rows"
    view = Incremental(Query.of(limited, RELATIONS, ()))
    assert [*kept_steps(view, judge, feed, STEPS)] == wanted
    with pytest.raises(BadQuery, match="rows that a limit leaves"):
        Query.of(limited, RELATIONS, FILES[name].key)


@pytest.mark.parametrize("name", ["q03", "q10", ORDERS_OF_CUSTOMERS])
def test_few_keys_are_touched_by_a_refresh(name: str) -> None:
    judge, feed = refreshed(2)
    view = Incremental(query_of(name))
    rows = sum(kept.total() for kept in kept_steps(view, judge, feed, STEPS))
    assert 0 < view.touched < rows / 10


@pytest.mark.parametrize("name", ["q01", "q09", "q13", "q16"])
def test_a_view_that_looks_at_new_rows_alone_is_told_to_be_wrong(name: str) -> None:
    judge, feed = refreshed(2)
    wanted = computed(judge, specified(name))
    assert [*kept_steps(Incremental(query_of(name), changes=ADDED), judge, feed, STEPS)] != wanted


def test_a_key_that_is_a_count_of_rows_is_refused_and_another_key_is_not() -> None:
    with pytest.raises(BadQuery, match="`c_count` is a key that is made of several rows") as refused:
        Query.of(specified("q13"), RELATIONS, ("c_count",))
    assert refused.value.reason == "key aggregate"
    assert "Make the inner query a view of its own, and read that" in refused.value.next_step
    judge, feed = refreshed(2)
    whole = Incremental(Query.of(specified("q13"), RELATIONS, ()))
    assert [*kept_steps(whole, judge, feed, STEPS)] == computed(judge, specified("q13"))


def fractions(judge: Judge) -> Iterator[tuple[str, float]]:
    """Conditions that a share of the rows of a table meets, each with the share."""
    for table, condition in (
        ("part", "p_brand not like 'Brand#__' or p_size not between 1 and 50 or len(string_split(p_type, ' ')) <> 3"),
        ("part", "p_retailprice not between 901 and 2100.99 or left(p_mfgr, 13) <> 'Manufacturer#'"),
        ("supplier", "s_acctbal not between -999.99 and 9999.99 or left(s_phone, 2) <> (s_nationkey + 10)::varchar"),
        ("customer", "c_acctbal not between -999.99 and 9999.99 or left(c_phone, 2) <> (c_nationkey + 10)::varchar"),
        ("partsupp", "ps_availqty not between 1 and 9999 or ps_supplycost not between 1 and 1000"),
        ("orders", "o_orderdate not between '1992-01-01' and '1998-08-02' or o_custkey % 3 = 0 or o_orderkey % 32 > 8"),
        ("lineitem", "l_quantity not between 1 and 50 or l_discount not between 0 and 0.1 or l_tax > 0.08"),
        ("lineitem", "l_shipdate >= l_receiptdate or (l_returnflag = 'N') <> (l_receiptdate > '1995-06-17')"),
        ("lineitem", "(l_linestatus = 'O') <> (l_shipdate > '1995-06-17') or l_linenumber not between 1 and 7"),
    ):
        rows = judge.rows(f"select avg(({condition})::int)::double from {table}")
        yield f"{table}: {condition}", next(iter(rows))[0]


def test_the_population_is_as_specified() -> None:
    judge, feed = refreshed(2)
    judge.move_to(0)
    rows = {table: feed.at(table, 0) for table in SCHEMA}
    counts = {table: len(each) for table, each in rows.items()}
    lines = counts.pop("lineitem")
    assert counts == {"region": 5, "nation": 25, **{table: number // 1_000 for table, number in ROWS.items()}}
    assert 3.8 < lines / counts["orders"] < 4.2
    assert (len(REGIONS), len(NATIONS)) == (5, 25)
    for table, key in KEYS.items():
        at = [list(SCHEMA[table]).index(name) for name in key]
        assert len({tuple(row[place] for place in at) for row in rows[table]}) == len(rows[table]), table
    assert [(condition, share) for condition, share in fractions(judge) if share > 0] == []
    orphans = """
        select count(*) from lineitem l left join orders on o_orderkey = l_orderkey
        left join partsupp on ps_partkey = l_partkey and ps_suppkey = l_suppkey
        where o_orderkey is null or ps_partkey is null
    """
    assert judge.rows(orphans) == Counter({(0,): 1})


@pytest.mark.parametrize("seed", [2, 3])
def test_a_key_stands_once_after_each_refresh(seed: int) -> None:
    judge, _ = refreshed(seed)
    for step in range(STEPS + 1):
        judge.move_to(step)
        for table, key in KEYS.items():
            twice = f"select {', '.join(key)} from {table} group by all having count(*) > 1"
            assert judge.rows(twice) == Counter(), (table, step)
