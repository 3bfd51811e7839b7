"""Views that read views are right when each is stepped after those that it reads, by its own changes alone."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from streaming.sql import Query
from tests.support.sql_views import SCHEMA, Incremental, Judge, Row, random_feed

STEPS = 4
LEVELS: dict[str, dict[str, str]] = {
    "by_customer": {"country": "varchar", "c_id": "int", "n": "int", "s": "int"},
    "by_number": {"n": "int", "k": "int", "top": "int"},
    "together": {"country": "varchar", "c_id": "int", "k": "int", "paid": "int"},
}
ALL = {**SCHEMA, **LEVELS}
RELATIONS = {name: tuple(columns) for name, columns in ALL.items()}
VIEWS = {
    "by_customer": Incremental(
        Query.of(
            "select c.country, o.c_id, count(*) n, sum(o.amount) s from orders o left join customers c"
            " on o.c_id = c.c_id group by c.country, o.c_id",
            RELATIONS,
            ("country", "c_id"),
        )
    ),
    # Its key is made of several rows of orders, which is why it is a view of its own.
    "by_number": Incremental(
        Query.of("select n, count(*) k, max(s) top from by_customer group by n", RELATIONS, ("n",))
    ),
    # It reads the first view twice: as it is, and by way of the second.
    "together": Incremental(
        Query.of(
            "select v.country, v.c_id, w.k, p.paid from by_customer v join by_number w on v.n = w.n"
            " left join payments p on p.paid = w.k",
            RELATIONS,
            ("c_id",),
        )
    ),
}


def stepped(judge: Judge, seed: int) -> tuple[int, list[tuple[str, int]]]:
    """The number of rows that changed in a view, and the steps after which one is not what is computed anew."""
    feed = random_feed(random.Random(seed), STEPS)
    feed.rows.update({name: [] for name in LEVELS})
    results: dict[str, Counter[Row]] = {name: Counter() for name in VIEWS}
    wrong, changed = [], 0
    for step in range(STEPS + 1):
        for name, view in VIEWS.items():
            judge.load(feed)
            judge.move_to(step)
            computed = judge.rows(view.text)
            everything = Counter([view.key_of(row) for row in computed])
            keys = judge.rows(view.affected(feed.changed(step))) if step else everything
            after = view.step(results[name], computed, keys)
            if after != computed:
                wrong.append((name, step))
            changed += (after - results[name]).total() if step else 0
            feed.follow(name, results[name], after, step)
            results[name] = after
    return changed, wrong


@pytest.mark.sampled
@pytest.mark.parametrize("block", range(6))
def test_three_levels_with_a_diamond_are_what_is_computed_anew(block: int) -> None:
    judge, changed = Judge(ALL), 0
    for seed in range(block * 10, block * 10 + 10):
        more, wrong = stepped(judge, seed)
        assert wrong == [], seed
        changed += more
    assert changed > 100
