"""Results whose affected keys alone are replaced are those that are computed anew, whatever rows come and go."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
from sqlglot import exp

from streaming.sql import affected
from streaming.sql.affected import Rewriting, Rows
from tests.support.sql_views import (
    ADDED,
    CLASSES,
    Feed,
    Incremental,
    Judge,
    query_of,
    random_feed,
    spark_to_duckdb,
    wrong_steps,
)

STEPS = 4
CHANGED = (("orders", "customers", "payments", "grades"), ("orders",), ("customers", "grades"), ("payments",))
"""The relations that change together in a feed, one after the other by its number."""


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge()


@cache
def incremental(name: str) -> Incremental:
    return Incremental(query_of(name))


def feed_of(number: int) -> Feed:
    return random_feed(random.Random(number), STEPS, CHANGED[number % len(CHANGED)])


def wrong(judge: Judge, numbers: range, classes: list[str], **mutation: Any) -> Iterator[tuple[str, int, int]]:
    """The class, feed and step of each result that is not the one computed anew."""
    views = {name: Incremental(query_of(name), **mutation) if mutation else incremental(name) for name in classes}
    for number in numbers:
        feed = feed_of(number)
        judge.load(feed)
        for name, view in views.items():
            for step, is_wrong in wrong_steps(view, judge, feed, STEPS):
                if is_wrong:
                    yield name, number, step


def test_there_are_queries_of_many_kinds() -> None:
    assert len(CLASSES) >= 40


@pytest.mark.sampled
@pytest.mark.parametrize("block", range(20))
def test_a_result_with_affected_keys_replaced_is_the_one_computed_anew(judge: Judge, block: int) -> None:
    assert list(wrong(judge, range(block, block + 1), list(CLASSES))) == []


def test_few_keys_are_touched(judge: Judge) -> None:
    """Replacing everything would be right as well, so what is touched is counted: of keys there, not half."""
    view, keys = Incremental(query_of("inner join")), 0
    for number in range(0, 20, 4):
        feed = feed_of(number)
        judge.load(feed)
        assert not any(is_wrong for _, is_wrong in wrong_steps(view, judge, feed, STEPS))
        keys += sum(len({view.key_of(row) for row in judge.rows(view.text)}) for _ in range(STEPS))
    assert 0 < view.touched < keys


@pytest.mark.parametrize("name", CLASSES)
def test_a_query_restricted_to_keys_has_the_rows_of_these_keys(judge: Judge, name: str) -> None:
    view, feed = incremental(name), feed_of(4)
    judge.load(feed)
    judge.move_to(1)
    keys = judge.save("some_keys", view.affected(feed.changed(1)))
    wanted = {row: n for row, n in judge.rows(view.text).items() if (view.key_of(row) or (1,)) in keys}
    restricted = spark_to_duckdb(view.query.restricted(lambda relation: relation, "some_keys"))
    assert judge.rows(restricted) == wanted
    assert judge.rows(view.restricted_near(judge, "some_keys")) == wanted


BEFORE, TOGETHER = 0, 1


def timeline(**rows: list[tuple[tuple[Any, ...], int, int | None]]) -> Feed:
    feed = Feed()
    feed.rows.update(rows)
    return feed


ORDER, GERMAN, PAID = (1, 7, 5, 2), (7, "de", 1), (1, 3, 0)
TRAPS: dict[str, tuple[str, Feed]] = {
    "both rows of a pair leave at once": (
        "inner join",
        timeline(orders=[(ORDER, BEFORE, TOGETHER)], customers=[(GERMAN, BEFORE, TOGETHER)]),
    ),
    "a row loses its partner": (
        "left join",
        timeline(orders=[(ORDER, BEFORE, None)], customers=[(GERMAN, BEFORE, TOGETHER)]),
    ),
    "a row loses both partners at once": (
        "three left, a key of each",
        timeline(
            orders=[(ORDER, BEFORE, None)], customers=[(GERMAN, BEFORE, TOGETHER)], payments=[(PAID, BEFORE, TOGETHER)]
        ),
    ),
    "a row comes as its partner leaves": (
        "left join",
        timeline(orders=[(ORDER, TOGETHER, None)], customers=[(GERMAN, BEFORE, TOGETHER)]),
    ),
    "both sides of a full join lose their partner": (
        "full join",
        timeline(
            orders=[(ORDER, BEFORE, TOGETHER), ((2, 8, 5, 2), BEFORE, None)],
            customers=[(GERMAN, BEFORE, None), ((8, "fr", 1), BEFORE, TOGETHER)],
        ),
    ),
    "two groups come under their limits at once": (
        "aggregates under a limit, joined",
        timeline(
            orders=[((1, 7, 6, 2), BEFORE, TOGETHER), ((1, 7, 4, 2), TOGETHER, None), ((1, 7, 1, 2), BEFORE, None)],
            payments=[((1, 6, 0), BEFORE, TOGETHER), ((1, 4, 0), TOGETHER, None), ((1, 1, 0), BEFORE, None)],
        ),
    ),
    "a payment comes with the order that it pays": (
        "exists",
        timeline(orders=[(ORDER, TOGETHER, None)], payments=[((1, 9, 0), TOGETHER, None)]),
    ),
    "nobody is known not to be a customer without a number": (
        "not in",
        timeline(orders=[(ORDER, BEFORE, None)], customers=[((None, "de", 1), TOGETHER, None)]),
    ),
    "an order of nobody is not in nothing, and then in doubt": (
        "not in",
        timeline(orders=[((1, None, 5, 2), BEFORE, None)], customers=[((8, "de", 1), TOGETHER, None)]),
    ),
    "a payment moves the average that others are compared with": (
        "scalar of no row",
        timeline(
            orders=[((1, 7, 5, 2), BEFORE, None), ((2, 8, 3, 3), BEFORE, None)],
            payments=[((1, 2, 1), BEFORE, None), ((9, 6, 1), TOGETHER, None)],
        ),
    ),
    "a customer comes under the limit, and another one leaves": (
        "joined with limited rows",
        timeline(
            orders=[(ORDER, BEFORE, None), ((2, 8, 5, 3), BEFORE, None)],
            customers=[(GERMAN, BEFORE, None), ((8, "fr", 2), BEFORE, None), ((9, "fr", 3), TOGETHER, None)],
        ),
    ),
    "a payment comes under the limit, and another one leaves": (
        "in limited rows",
        timeline(
            orders=[(ORDER, BEFORE, None), ((2, 8, 5, 3), BEFORE, None)],
            payments=[((1, 1, 1), BEFORE, None), ((2, 2, 1), BEFORE, None), ((3, 3, 1), TOGETHER, None)],
        ),
    ),
    "an order that is not asked for comes under the limit, and another one leaves": (
        "limited rows, chosen and joined",
        timeline(
            orders=[*(((at, 7, 5 - at, 2), BEFORE, None) for at in (1, 2, 3)), ((4, 7, 9, 2), TOGETHER, None)],
        ),
    ),
    "the last row of a group leaves": ("global", timeline(orders=[(ORDER, BEFORE, TOGETHER)])),
    "a grade ends as another begins": (
        "for time of",
        timeline(
            orders=[(ORDER, BEFORE, None)],
            grades=[
                ((7, 1, 0, None), BEFORE, TOGETHER),
                ((7, 1, 0, 2), TOGETHER, None),
                ((7, 2, 2, None), TOGETHER, None),
            ],
        ),
    ),
}


def is_wrong(judge: Judge, name: str, feed: Feed, **mutation: Any) -> bool:
    judge.load(feed)
    return any(is_wrong for _, is_wrong in wrong_steps(Incremental(query_of(name), **mutation), judge, feed, 1))


@pytest.mark.parametrize("trap", TRAPS)
def test_a_trap_is_not_fallen_into(judge: Judge, trap: str) -> None:
    name, feed = TRAPS[trap]
    judge.load(feed)
    judge.move_to(BEFORE)
    before = judge.rows(incremental(name).text)
    judge.move_to(TOGETHER)
    assert judge.rows(incremental(name).text) != before, "the step changes nothing"
    assert not is_wrong(judge, name, feed)


def without_ghosts(self: Rewriting, *of: Any) -> exp.Expr:
    twice = WITH_GHOSTS(self, *of)
    values = twice.find(exp.Values)
    assert values is not None
    values.set("expressions", values.expressions[:1])
    return twice


def as_it_is(self: Rewriting, query: exp.Expr) -> Rows:
    return Rows(self.stable(query.this if isinstance(query, exp.Subquery) else query), {})


WITH_GHOSTS = Rewriting._with_ghosts
MUTANTS: dict[str, tuple[dict[str, Any], tuple[str, Callable[..., Any]] | None, tuple[str, ...]]] = {
    "changed rows without the old ones": (
        {"changes": ADDED},
        None,
        ("a row loses its partner", "the last row of a group leaves", "both rows of a pair leave at once"),
    ),
    "other relations by what is there now": ({"ever": ""}, None, ("both rows of a pair leave at once",)),
    "no ghosts of outer joins": (
        {},
        ("_with_ghosts", without_ghosts),
        ("a row loses its partner", "a row loses both partners at once"),
    ),
    "other subqueries as they are": (
        {},
        ("relaxed", as_it_is),
        ("two groups come under their limits at once",),
    ),
}


@pytest.mark.parametrize("trap", [trap for trap, (name, _) in TRAPS.items() if name == "not in"])
def test_a_not_in_that_is_asked_for_equal_values_alone_is_wrong(
    judge: Judge, trap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(affected, "_is_not_another", affected._is_equal)
    assert is_wrong(judge, *TRAPS[trap])


@pytest.mark.parametrize("trap", [trap for trap in TRAPS if "under the limit" in trap])
def test_a_limit_whose_other_rows_are_not_thought_of_is_wrong(
    judge: Judge, trap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(affected, "is_limited", lambda query: False)
    assert is_wrong(judge, *TRAPS[trap])


@pytest.mark.parametrize("mutant", MUTANTS)
def test_each_trap_catches_its_mutant(judge: Judge, mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    suffixes, replaced, traps = MUTANTS[mutant]
    if replaced:
        monkeypatch.setattr(Rewriting, *replaced)
    assert [trap for trap in traps if not is_wrong(judge, *TRAPS[trap], **suffixes)] == []


@pytest.mark.long
@pytest.mark.parametrize("mutant", MUTANTS)
def test_random_steps_catch_each_mutant(judge: Judge, mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    suffixes, replaced, traps = MUTANTS[mutant]
    if replaced:
        monkeypatch.setattr(Rewriting, *replaced)
    classes = [TRAPS[trap][0] for trap in traps]
    views = [Incremental(query_of(name), **suffixes) for name in dict.fromkeys(classes)]
    feeds = ((feed_of(number), view) for number in range(400) for view in views)
    assert any(_is_wrong(judge, view, feed) for feed, view in feeds)


def _is_wrong(judge: Judge, view: Incremental, feed: Feed) -> bool:
    judge.load(feed)
    return any(is_wrong for _, is_wrong in wrong_steps(view, judge, feed, STEPS))
