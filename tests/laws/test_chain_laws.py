"""Law of chains: whatever ran when and was killed where, what is current of the last view is a batch over all rows.

The oracle is plain Python over the rows of the first log, and shares nothing with the engine but sizes of windows.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import (
    BoundedOutOfOrderness,
    Derived,
    Files,
    Json,
    Lake,
    Pipeline,
    Sliding,
    Stream,
    Table,
    Tumbling,
    Windowed,
    agg,
)
from streaming.audit.laws import audit
from streaming.base import StreamingError
from streaming.changes import publish
from streaming.reading.selection import Choice
from streaming.reading.stored import stored_rows
from tests.support.instants import NOW, T0, at
from tests.support.killed import Killed, killed_at
from tests.support.runs import run
from tests.support.seeds import draws
from tidemark.testing import correct

DELAY = 10
SIZES = ((20, 60, 180), (30, 30, 120), (60, 120, 240), (20, 40, 80))
"""Seconds of the windows of each level."""
KEYS = "ab"
Rows = list[tuple[str, float, int]]
"""Key, seconds after T0, value."""


@dataclass(frozen=True)
class Level:
    """One view of a chain: windows of `size` seconds every `slide`, of which `value` is made of the rows' values."""

    size: int
    slide: int
    kind: str

    @property
    def window(self) -> Tumbling | Sliding:
        size = f"{self.size} seconds"
        return Tumbling(size) if self.slide == self.size else Sliding(size, f"{self.slide} seconds")

    def value(self, rows: Sequence[tuple[float, int]]) -> int:
        """By hand: over rows in the order of their time."""
        values = [value for _, value in sorted(rows)]
        by_hand: dict[str, Callable[[Sequence[int]], int]] = {"sum": sum, "max": max, "count": len}
        return len({*values}) if self.kind == "different" else by_hand[self.kind](values)

    @property
    def aggregate(self) -> Any:
        return {
            "sum": agg.sum("value"),
            "max": agg.maximum("value"),
            "count": agg.count(),
            "different": agg.count_distinct("value"),
        }[self.kind]


def chain_of(levels: Sequence[Level]) -> list[Pipeline]:
    stream = Stream(
        name="level0",
        source=Files("landing/level0"),
        format=Json("id string, at timestamp, value bigint"),
        event_time="at",
        clock=BoundedOutOfOrderness(f"{DELAY} seconds", max_ahead="30 days"),
    )
    pipelines = []
    for number, level in enumerate(levels):
        view = Windowed(f"view{number}", stream, level.window, {"value": level.aggregate}, by=("id",))
        pipelines.append(Pipeline(stream, (view,)))
        stream = Stream(
            name=f"level{number + 1}",
            source=Table(view, what="current"),
            format=Json("id string, value bigint"),
            derived={"at": "_origin.at"},
            event_time="at",
            clock=Derived(max_ahead="30 days"),
        )
    return pipelines


def windows(seconds: float, level: Level) -> Iterator[int]:
    """The starts of the windows that hold an instant."""
    last = int(seconds // level.slide * level.slide)
    yield from (start for start in range(last, last - level.size, -level.slide) if start + level.size > seconds)


def batch(rows: Rows, levels: Sequence[Level]) -> list[tuple[str, int, int]]:
    """Key, start of the window and value of all results of the last level that its clock has closed."""
    closed = max(seconds for _, seconds, _ in rows) - DELAY
    found = [(key, seconds, value) for key, seconds, value in rows]
    for number, level in enumerate(levels):
        groups: dict[tuple[str, int], list[tuple[float, int]]] = defaultdict(list)
        for key, seconds, value in found:
            for start in windows(seconds, level):
                groups[key, start].append((seconds, value))
        found = [(key, start, level.value(of)) for (key, start), of in groups.items()]
        if number + 1 < len(levels):
            closed -= level.size
    return sorted((key, int(start), value) for key, start, value in found if start + levels[-1].size <= closed)


def current(lake: Lake, pipeline: Pipeline) -> list[tuple[str, int, int]]:
    rows = stored_rows(lake, pipeline, pipeline.views[0])
    if rows is None:
        return []
    return sorted(
        (row["id"], int((row["window_start"] - T0).total_seconds()), row["value"])
        for row in Choice(rows).table().to_pylist()
    )


def payload(row: tuple[str, float, int]) -> dict[str, Any]:
    key, seconds, value = row
    return {"id": key, "at": at(seconds).isoformat(), "value": value}


def drawn(chance: random.Random) -> tuple[list[Level], list[Rows]]:
    """A chain, and batches of rows of which some come minutes late."""
    kinds = ("sum", "max", "count", "different")
    levels: list[Level] = []
    for size in chance.choice(SIZES)[: chance.choice((2, 3))]:
        slide = size if chance.random() < 0.7 else size // 2
        # The second level would not tell by a maximum whether a smaller row was taken back.
        levels.append(Level(size, slide, chance.choice(kinds if len(levels) != 1 else ("sum", "count"))))
    until, batches = 0.0, []
    for _ in range(4):
        until += chance.choice((60, 200, 400))
        batches.append(
            [
                (chance.choice(KEYS), max(0.0, until - chance.choice((0, 1, 5, 40, 150, 600))), chance.randint(1, 4))
                for _ in range(6)
            ]
        )
    batches[0].append(("a", 5.0, 1))
    # Closes everything before it at every level; and whatever was drawn, a result is taken back then.
    batches += [[("a", until + 1500, 1)], [("a", 5.5, 50)]]
    return levels, batches


def quiet(spark: SparkSession, lake: Lake, pipelines: Sequence[Pipeline]) -> None:
    """One pass from the first log to the last table."""
    for pipeline in pipelines:
        run(spark, lake, pipeline)
        correct(spark, lake, pipeline.views[0], lambda: NOW)
        publish(spark, lake, pipeline.views[0])


@pytest.mark.long
@pytest.mark.parametrize("seed", range(12))
def test_current_of_the_last_view_is_a_batch_over_the_first_log(
    spark: SparkSession, lake: Lake, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = draws(f"chain {seed}")
    levels, batches = drawn(chance)
    pipelines = chain_of(levels)
    for rows in batches:
        run(spark, lake, pipelines[0], [payload(row) for row in rows])
        for _ in range(3):
            pipeline = chance.choice(pipelines)
            done: list[Callable[[], object]] = [
                partial(run, spark, lake, pipeline),
                partial(correct, spark, lake, pipeline.views[0], lambda: NOW),
                partial(publish, spark, lake, pipeline.views[0]),
            ]
            # One whose upstream has nothing yet is refused.
            with monkeypatch.context() as patched, suppress(Killed, StreamingError):
                if chance.random() < 0.4:
                    killed_at(chance.randint(1, 3), patched)
                chance.choice(done)()
    quiet(spark, lake, pipelines)
    every = [row for rows in batches for row in rows]
    for depth, pipeline in enumerate(pipelines):
        assert current(lake, pipeline) == batch(every, levels[: depth + 1]), (depth, levels)
    assert current(lake, pipelines[-1])
    findings = [finding for pipeline in pipelines for finding in audit(spark, lake, pipeline)]
    assert [finding for finding in findings if not finding.holds] == []
    before = [current(lake, pipeline) for pipeline in pipelines]
    quiet(spark, lake, pipelines)
    assert [current(lake, pipeline) for pipeline in pipelines] == before
