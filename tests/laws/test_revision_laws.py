"""Laws of revised streams: whatever the cuts and kills, rows that stand are the newest revisions, and views follow.

The oracle is plain Python over the revisions as they were sent, and shares nothing with the engine.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import Lake, Pipeline, Sliding, Tumbling, Windowed, agg
from streaming.audit.laws import audit
from streaming.base import StreamingError
from streaming.log import read_log
from streaming.operators.runtime import runtime_of
from streaming.revisions import standing_rows
from tests.laws.standing import Side, before_end, side_of
from tests.support.instants import NOW, T0
from tests.support.killed import Killed, killed_at
from tests.support.orders import ORDERS, Revision, came
from tests.support.runs import read_current, run
from tests.support.seeds import draws
from tidemark.testing import correct

AGGREGATES = {
    "orders": agg.count(),
    "paid": agg.sum("amount"),
    "most": agg.maximum("amount"),
    "amounts": agg.count_distinct("amount"),
}
MINUTES = Windowed("minutes", ORDERS, Tumbling("60 seconds"), AGGREGATES, by=("country",))
SLIDING = Windowed("slid", ORDERS, Sliding("60 seconds", "20 seconds"), AGGREGATES, by=("country",))
AMOUNTS = Windowed(
    "different", ORDERS, Tumbling("120 seconds"), {"orders": agg.count()}, by=("country",), distinct=("amount",)
)
PIPELINE = Pipeline(ORDERS, (MINUTES, SLIDING, AMOUNTS))


Result = tuple[str, int, int, int, int, int]


def drawn(chance: random.Random) -> list[list[Revision]]:
    """Batches of revisions of a few keys, out of order, with deletes, copies, ties and rows that come again."""
    until, batches = 0.0, []
    versions: dict[str, int] = defaultdict(int)
    sent: list[Revision] = []
    for _ in range(chance.choice((5, 6))):
        until += chance.choice((20, 50, 100))
        batch = []
        for _ in range(chance.randint(1, 8)):
            key = chance.choice("abcd")
            draw = chance.random()
            if sent and draw < 0.15:
                batch.append(chance.choice(sent))
                continue
            # A sequence may go back, or be as great as another one.
            versions[key] += chance.choice((0, 1, 1, 1, 2)) if draw < 0.9 else -1
            if draw > 0.8:
                seconds = None if chance.random() < 0.5 else until
                batch.append(Revision(key, versions[key], seconds, None, None, True))
            else:
                seconds = max(0.0, until - chance.choice((0, 1, 30, 120)))
                country = chance.choice(("DE", "FR"))
                batch.append(Revision(key, versions[key], seconds, country, chance.randint(1, 4)))
        sent += batch
        batches.append(batch)
    # Closes all windows before it, and is in one that stays open.
    return [*batches, [Revision("end", 1, until + 1000, "XX", 1)]]


def results(rows: Iterable[Revision], size: int, slide: int) -> dict[tuple[str, int], list[int]]:
    """The amounts in each window, by country and start."""
    windows: dict[tuple[str, int], list[int]] = defaultdict(list)
    for row in rows:
        assert row.seconds is not None and row.country is not None and row.amount is not None
        last = int(row.seconds // slide * slide)
        for start in range(last, last - size, -slide):
            if start + size > row.seconds:
                windows[row.country, start].append(row.amount)
    return windows


def expected(rows: Iterable[Revision], size: int, slide: int, closed: float) -> list[Result]:
    return sorted(
        (country, start, len(amounts), sum(amounts), max(amounts), len({*amounts}))
        for (country, start), amounts in results(rows, size, slide).items()
        if start + size <= closed
    )


def published(rows: Any) -> list[Result]:
    chosen = rows.selectExpr("country", "unix_seconds(window_start)", *AGGREGATES).collect()
    origin = int(T0.timestamp())
    return sorted((row[0], row[1] - origin, *row[2:]) for row in chosen)


def first(side: Side, size: int, slide: int, closed: float) -> list[Result]:
    """First results: of each window over the rows that stand by what came before its end."""
    found = []
    for end in sorted({start + size for _, start in results(side.rows, size, slide)}):
        known = side.standing(before_end(end))
        found += [each for each in expected(known, size, slide, closed) if each[1] + size == end]
    return sorted(found)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(12))
def test_what_stands_and_all_that_follows_is_of_the_newest_revisions(
    spark: SparkSession, lake: Lake, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = draws(f"revisions {seed}")
    batches = drawn(chance)
    landed = sum(map(len, batches))
    for batch in batches:
        rows = [each.payload() for each in batch]
        # What was landed before a kill is still there, and comes with the next batch, or at the end.
        with monkeypatch.context() as patched, suppress(Killed, StreamingError):
            if chance.random() < 0.5:
                killed_at(chance.randint(1, 6), patched)
            run(spark, lake, PIPELINE, rows)
    run(spark, lake, PIPELINE)
    log = came(spark, lake, ORDERS)
    assert sum(map(len, log.values())) == landed
    side = side_of(log)
    assert side.clock is not None
    by_hand = sorted((each.id, each.version, each.amount) for each in side.standing())
    found = standing_rows(spark, lake, ORDERS).select("id", "version", "amount").collect()
    assert sorted(map(tuple, found)) == by_hand
    for view in PIPELINE.views:
        correct(spark, lake, view, lambda: NOW)
    findings = list(audit(spark, lake, PIPELINE))
    assert [finding for finding in findings if not finding.holds] == []
    for view, size, slide in ((MINUTES, 60, 60), (SLIDING, 60, 20)):
        current = published(read_current(spark, lake, view))
        assert current == expected(side.standing(), size, slide, side.clock), view.name
        firsts = published(runtime_of(view, lake).readable["first"](spark))
        assert firsts == first(side, size, slide, side.clock), view.name
    different = read_current(spark, lake, AMOUNTS).selectExpr("country", "unix_seconds(window_start)", "orders")
    counted = [(each[0], each[1], each[5]) for each in expected(side.standing(), 120, 120, side.clock)]
    assert sorted((row[0], row[1] - int(T0.timestamp()), row[2]) for row in different.collect()) == counted


@pytest.mark.long
def test_changes_are_the_same_however_revisions_are_cut_into_runs(spark: SparkSession, tmp_path: Any) -> None:
    batches = drawn(draws("cuts of revisions"))
    found = []
    for runs in ([batches], [[batch] for batch in batches]):
        lake = Lake(str(tmp_path / str(len(runs))))
        for several in runs:
            run(spark, lake, PIPELINE, *([each.payload() for each in batch] for batch in several))
        rows = read_log(spark, lake, ORDERS).selectExpr("_origin.change", "id", "version", "amount", "country")
        found.append(sorted(map(str, rows.collect())))
    assert found[0] == found[1]
