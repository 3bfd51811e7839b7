"""Queries drawn from a grammar are refused, or kept right."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from streaming.base import BadQuery
from streaming.sql import Query
from tests.support.random_sql import RandomSql
from tests.support.sql_views import COLUMNS, Incremental, Judge, random_feed, spark_to_duckdb, wrong_steps

QUERIES, STEPS = 10, 3


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge()


@pytest.mark.sampled
@pytest.mark.parametrize("block", range(20))
def test_what_is_not_refused_is_right(judge: Judge, block: int) -> None:
    accepted, refused = 0, Counter[str]()
    for seed in range(block * QUERIES, (block + 1) * QUERIES):
        draws = random.Random(seed)
        sql, key = RandomSql(draws).query()
        try:
            view = Incremental(Query.of(sql, COLUMNS, key))
        except BadQuery as error:
            refused[error.reason] += 1
            continue
        accepted += 1
        feed = random_feed(draws, STEPS)
        judge.load(feed)
        wrong = [step for step, is_wrong in wrong_steps(view, judge, feed, STEPS) if is_wrong]
        assert wrong == [], (seed, sql, key)
        keys = judge.save("some_keys", view.affected(feed.changed(STEPS)))
        wanted = {row: n for row, n in judge.rows(view.text).items() if (view.key_of(row) or (1,)) in keys}
        restricted = spark_to_duckdb(view.query.restricted(lambda relation: relation, "some_keys"))
        assert judge.rows(restricted) == wanted, (seed, sql, key)
        assert judge.rows(view.restricted_near(judge, "some_keys")) == wanted, (seed, sql, key)
    assert accepted > refused.total() / 3, refused
    # A drawn number in `group by` is a position.
    assert {*refused} <= {
        "position",
        "key aggregate",
        "key limit",
        "limit",
        "key window",
        "key partition",
        "key subquery",
        "nested",
    }
