"""Laws of revised streams: whatever the cuts and kills, rows that stand are the newest revisions, and views follow.

The oracle is plain Python over the revisions as they were sent, and shares nothing with the engine.
"""

from __future__ import annotations

import random
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import BoundedOutOfOrderness, Files, Json, Lake, Pipeline, Sliding, Stream, Tumbling, Windowed, agg
from streaming.audit.laws import audit
from streaming.base import StreamingError
from streaming.log import read_log
from streaming.operators.runtime import runtime_of
from streaming.revisions import standing_rows
from tests.support.instants import NOW, T0, at
from tests.support.killed import Killed, killed_at
from tests.support.runs import read_current, run
from tests.support.seeds import draws
from tidemark.testing import correct

DELAY = 10
STREAM = Stream(
    name="orders",
    source=Files("landing/orders"),
    format=Json("id string, version bigint, at timestamp, country string, amount bigint, gone boolean"),
    event_time="at",
    clock=BoundedOutOfOrderness(f"{DELAY} seconds", max_ahead="30 days"),
    key=("id",),
    sequence="version",
    deletes="gone",
)
AGGREGATES = {
    "orders": agg.count(),
    "paid": agg.sum("amount"),
    "most": agg.maximum("amount"),
    "amounts": agg.count_distinct("amount"),
}
MINUTES = Windowed("minutes", STREAM, Tumbling("60 seconds"), AGGREGATES, by=("country",))
SLIDING = Windowed("slid", STREAM, Sliding("60 seconds", "20 seconds"), AGGREGATES, by=("country",))
AMOUNTS = Windowed(
    "different", STREAM, Tumbling("120 seconds"), {"orders": agg.count()}, by=("country",), distinct=("amount",)
)
PIPELINE = Pipeline(STREAM, (MINUTES, SLIDING, AMOUNTS))


@dataclass(frozen=True)
class Revision:
    id: str
    version: int
    seconds: float | None
    country: str | None
    amount: int | None
    gone: bool = False

    def payload(self) -> dict[str, Any]:
        time = None if self.seconds is None else at(self.seconds).isoformat()
        return {**vars(self), "at": time, "gone": self.gone}


Batches = list[list[Revision]]
Result = tuple[str, int, int, int, int, int]


def drawn(chance: random.Random) -> Batches:
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


def standing(revisions: list[Revision]) -> list[Revision]:
    """The newest revision of each key that is not gone; of equal sequences the first that came."""
    newest: dict[str, Revision] = {}
    for each in revisions:
        if each.id not in newest or each.version > newest[each.id].version:
            newest[each.id] = each
    return [each for each in newest.values() if not each.gone]


def results(rows: list[Revision], size: int, slide: int) -> dict[tuple[str, int], list[int]]:
    """The amounts in each window, by country and start."""
    windows: dict[tuple[str, int], list[int]] = defaultdict(list)
    for row in rows:
        assert row.seconds is not None and row.country is not None and row.amount is not None
        last = int(row.seconds // slide * slide)
        for start in range(last, last - size, -slide):
            if start + size > row.seconds:
                windows[row.country, start].append(row.amount)
    return windows


def expected(rows: list[Revision], size: int, slide: int, closed: float) -> list[Result]:
    return sorted(
        (country, start, len(amounts), sum(amounts), max(amounts), len({*amounts}))
        for (country, start), amounts in results(rows, size, slide).items()
        if start + size <= closed
    )


def published(rows: Any) -> list[Result]:
    chosen = rows.selectExpr("country", "unix_seconds(window_start)", *AGGREGATES).collect()
    origin = int(T0.timestamp())
    return sorted((row[0], row[1] - origin, *row[2:]) for row in chosen)


def stamps(batches: Batches) -> list[float | None]:
    """The watermark in seconds that stamps each batch."""
    found: list[float | None] = []
    greatest: float | None = None
    for batch in batches:
        found.append(None if greatest is None else greatest - DELAY)
        times = [each.seconds for each in batch if each.seconds is not None]
        greatest = max([*times, *([] if greatest is None else [greatest])], default=None)
    return found


def first(batches: Batches, size: int, slide: int, closed: float) -> list[Result]:
    """First results: of each window over the newest of the revisions with a stamp below its end."""
    found = []
    times = stamps(batches)
    ends = {
        start + size
        for batch in batches
        for each in batch
        if each.seconds is not None
        for start in range(int(each.seconds // slide * slide) - size, int(each.seconds // slide * slide) + 1, slide)
    }
    for end in sorted(end for end in ends if end <= closed):
        known = [
            each for batch, stamp in zip(batches, times, strict=True) for each in batch if stamp is None or stamp < end
        ]
        found += [each for each in expected(standing(known), size, slide, closed) if each[1] + size == end]
    return sorted(found)


def came(spark: SparkSession, lake: Lake) -> Batches:
    """The revisions in their log, as it has cut them into batches; a kill may have put two of those sent into one."""
    batches: dict[int, list[Revision]] = defaultdict(list)
    origin = int(T0.timestamp() * 1_000_000)
    columns = ("_batch", "id", "version", f"(unix_micros(at) - {origin}) / 1e6 as seconds", "country", "amount", "gone")
    log = read_log(spark, lake, STREAM.revisions).where("_rejected is null and _origin is not null")
    for row in log.orderBy("_batch", "_origin").selectExpr(*columns).collect():
        batches[row["_batch"]].append(Revision(*row[1:]))
    return [batches[number] for number in range(max(batches) + 1)]


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
    batches = came(spark, lake)
    assert sum(map(len, batches)) == landed
    sent = [each for batch in batches for each in batch]
    by_hand = sorted((each.id, each.version, each.amount) for each in standing(sent))
    found = standing_rows(spark, lake, STREAM).select("id", "version", "amount").collect()
    assert sorted(map(tuple, found)) == by_hand
    for view in PIPELINE.views:
        correct(spark, lake, view, lambda: NOW)
    findings = list(audit(spark, lake, PIPELINE))
    assert [finding for finding in findings if not finding.holds] == []
    times = [each.seconds for each in sent if each.seconds is not None]
    closed = max(times) - DELAY
    for view, size, slide in ((MINUTES, 60, 60), (SLIDING, 60, 20)):
        assert published(read_current(spark, lake, view)) == expected(standing(sent), size, slide, closed), view.name
        firsts = published(runtime_of(view, lake).readable["first"](spark))
        assert firsts == first(batches, size, slide, closed), view.name
    different = read_current(spark, lake, AMOUNTS).selectExpr("country", "unix_seconds(window_start)", "orders")
    counted = [(each[0], each[1], each[5]) for each in expected(standing(sent), 120, 120, closed)]
    assert sorted((row[0], row[1] - int(T0.timestamp()), row[2]) for row in different.collect()) == counted


@pytest.mark.long
def test_changes_are_the_same_however_revisions_are_cut_into_runs(spark: SparkSession, tmp_path: Any) -> None:
    batches = drawn(draws("cuts of revisions"))
    found = []
    for runs in ([batches], [[batch] for batch in batches]):
        lake = Lake(str(tmp_path / str(len(runs))))
        for several in runs:
            run(spark, lake, PIPELINE, *([each.payload() for each in batch] for batch in several))
        rows = read_log(spark, lake, STREAM).selectExpr("_origin.change", "id", "version", "amount", "country")
        found.append(sorted(map(str, rows.collect())))
    assert found[0] == found[1]
