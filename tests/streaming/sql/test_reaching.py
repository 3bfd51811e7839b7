"""The rows of each relation that a key depends on give the rows of that key, and no others are needed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from streaming.sql import Query
from tests.support.sql_views import CLASSES, Judge, query_of, random_feed, spark_to_duckdb

MARK = "_mark"
KEYS = 4
EVERYTHING = ("orders", "customers", "payments", "grades")


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge()


def keys_of(judge: Judge, query: Query, result: str) -> Iterator[str]:
    """A table with some keys of the result in turn; with the only one of a query that has no columns for it."""
    if not query.key:
        judge.save("one_key", "select 1 as touched")
        yield "true"
        return
    names = ", ".join(f'"{name}"' for name in query.key)
    same = " and ".join(f'(r."{name}" is not distinct from k."{name}")' for name in query.key)
    there = sum(judge.rows(f"select distinct {names} from ({result})").values())
    for place in range(min(there, KEYS)):
        judge.save("one_key", f"select distinct {names} from ({result}) order by all limit 1 offset {place}")
        yield f"exists (select 1 from one_key k where {same})"


def reaching(judge: Judge, query: Query) -> Counter[str]:
    """The number of rows of each relation that the key in `one_key` depends on, which are put in tables `..._left`."""
    numbers = Counter[str]()
    for relation in query.relations:
        judge.save(f"{relation}_marked", f"select *, row_number() over () as {MARK} from {relation}")
        sql = query.reaching(relation, f"{relation}_marked", lambda name: name, "one_key", MARK)
        marks = judge.rows(spark_to_duckdb(sql))
        assert max(marks.values(), default=1) == 1
        listed = ", ".join(str(mark) for (mark,) in marks if mark is not None) or "null"
        judge.save(f"{relation}_left", f"select * exclude ({MARK}) from {relation}_marked where {MARK} in ({listed})")
        numbers[relation] = len(marks)
    return numbers


@pytest.mark.parametrize("name", CLASSES)
def test_a_key_computed_from_the_rows_that_reach_it_alone_has_its_rows(judge: Judge, name: str) -> None:
    query = query_of(name)
    result = spark_to_duckdb(query.text(lambda relation: relation))
    for number in (1, 5):
        judge.load(random_feed(random.Random(number), 4, EVERYTHING))
        judge.move_to(2)
        for is_of_key in keys_of(judge, query, result):
            wanted = judge.rows(f"select * from ({result}) r where {is_of_key}")
            reaching(judge, query)
            alone = spark_to_duckdb(query.restricted(lambda relation: f"{relation}_left", "one_key"))
            assert judge.rows(alone) == wanted


@pytest.mark.parametrize(("name", "of"), [("inner join", ("orders", "customers")), ("left join", ("orders",))])
def test_rows_of_other_keys_do_not_reach_a_key(judge: Judge, name: str, of: Any) -> None:
    query = query_of(name)
    result = spark_to_duckdb(query.text(lambda relation: relation))
    judge.load(random_feed(random.Random(3), 4, EVERYTHING))
    judge.move_to(2)
    found, keys = Counter[str](), 0
    for _ in keys_of(judge, query, result):
        found, keys = found + reaching(judge, query), keys + 1
    assert keys > 1
    for relation in of:
        there = sum(judge.rows(f"from {relation}").values())
        assert found[relation] < keys * there
