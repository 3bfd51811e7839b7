"""Keyed functions as whole pipelines, from files to tables, cut and killed at random, against the oracles of the laws.

A pipeline runs once, and its process dies once between any two commits of its steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Literal

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from streaming import Keyed, Lake, Pipeline, drain
from streaming.operators import runtime as runtimes
from streaming.service.run import Run
from tests.laws.cases import PIPELINES
from tests.streaming.keyed.corrections_oracle import Row, over_all_rows, told
from tests.streaming.keyed.test_laws import Batch, Oracle, expected, function
from tests.streaming.keyed.test_laws import told as in_words
from tests.support.feeds import land_all
from tests.support.instants import NOW, T0, at, ms
from tests.support.killed import Killed, killed_at
from tests.support.seeds import draws
from tidemark.testing import correct, read

KEYS = "abcd"


@dataclass(frozen=True)
class Drawn:
    """What arrives, and what is done to the pipeline.

    `cut`: how many batches are there when it is drained first. `most_rows`: what a step takes of the log, per core.
    `dies_in`: the drain in which it dies, 0 or 1, before the commit `dies_at` of its steps. `idle`: whether keys of the
    function by arrival are forgotten; those of the function by event time are where they are not.
    """

    batches: list[Batch]
    cut: int
    most_rows: int
    dies_in: int
    dies_at: int
    idle: bool

    @property
    def functions(self) -> tuple[tuple[Keyed, Literal["arrival", "event"], bool], ...]:
        """Functions that are told all a key has, with their order and whether they forget."""
        arrival = replace(function("arrival", self.idle), name="by_arrival")
        event = replace(function("event", not self.idle), name="by_event")
        return (arrival, "arrival", self.idle), (event, "event", not self.idle)

    @property
    def pipeline(self) -> Pipeline:
        return Pipeline(told.streams[0], (*(keyed for keyed, *_ in self.functions), told))


def drawn(number: int) -> Drawn:
    """One of the pipelines of this run; rows are up to 20 seconds out of order, of a delay of three."""
    draw = draws("keyed pipeline", number)
    batches = [[_row(draw, batch) for _ in range(draw.randint(3, 9))] for batch in range(draw.randint(3, 5))]
    most_rows = (1_000_000, 4)[number % 2]
    # Three functions have four tables each, and a step commits each of them.
    dies_at = draw.randint(1, 12)
    return Drawn(batches, draw.randrange(1, len(batches)), most_rows, int(number % 3 == 1), dies_at, number % 4 > 1)


def _row(draw: Random, batch: int) -> tuple[str, int, int]:
    seconds = 8 * batch + draw.randrange(10) - draw.choice((0, 0, 0, 7, 20))
    return draw.choice(KEYS), max(0, seconds), draw.randrange(10)


@dataclass(frozen=True)
class Ran:
    """What was drawn, and the lake that it left."""

    of: Drawn
    lake: Lake


@pytest.fixture(scope="module", params=range(PIPELINES), ids=lambda number: f"pipeline{number}")
def ran(request: pytest.FixtureRequest, two_partitions: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    of, lake = drawn(request.param), Lake(str(tmp_path_factory.mktemp("keyed") / "lake"))

    def drained() -> None:
        drain(two_partitions, lake, of.pipeline, now=lambda: NOW)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(runtimes, "ROWS_PER_CORE", of.most_rows)
        for number, batches in enumerate((of.batches[: of.cut], of.batches[of.cut :])):
            land_all(lake, told.streams[0], *map(_payloads, batches))
            if number == of.dies_in:
                _killed(of.dies_at, drained)
            drained()
    return Ran(of, lake)


def _killed(dies_at: int, drained: Callable[[], None]) -> None:
    stepping = Run.step_all
    with pytest.MonkeyPatch.context() as dying, pytest.raises(Killed):

        def dies(running: Run) -> None:
            killed_at(dies_at, dying)
            stepping(running)

        dying.setattr(Run, "step_all", dies)
        drained()


def _payloads(batch: Batch) -> list[dict[str, Any]]:
    return [{"id": key, "timestamp": ms(at(when)), "temperature": float(value)} for key, when, value in batch]


def _rows(lake: Lake, keyed: Keyed, suffix: str, *columns: str) -> list[dict[str, Any]]:
    return DeltaTable(lake.table(keyed, suffix)).to_pyarrow_table(columns=list(columns)).to_pylist()


def _in_order(oracles: dict[str, Oracle]) -> dict[str, dict[str, Any]]:
    return {
        key: {**entry, "emitted": {to: sorted(rows, key=repr) for to, rows in entry["emitted"].items()}}
        for key, entry in in_words(oracles).items()
    }


@pytest.mark.sampled
@pytest.mark.parametrize("number", [0, 1], ids=["arrival", "event"])
def test_a_pipeline_that_was_cut_and_killed_anywhere_leaves_what_the_oracle_says(ran: Ran, number: int) -> None:
    keyed, order, idle = ran.of.functions[number]
    entries: dict[str, dict[str, Any]] = {}
    for to, schema in keyed.output_schemas.items():
        for row in _rows(ran.lake, keyed, to, "id", "_at", *schema.names):
            key, when, *values = row.values()
            entry = entries.setdefault(key, {"emitted": {}, "state": {}, "timers": {}})
            outcome = "nine" if to == "failed" and "nine" in values[0] else tuple(values)
            entry["emitted"].setdefault(to, []).append((to, when, outcome))
    for row in _rows(ran.lake, keyed, "state", "id", "_timers", *keyed.state_schema.names):
        entry = entries.setdefault(row.pop("id"), {"emitted": {}, "state": {}, "timers": {}})
        assert not entry["state"], "a key has one row of state"
        entry["timers"] = {name.removeprefix("_"): when for name, when in row.pop("_timers")}
        entry["state"] = row
    for entry in entries.values():
        entry["emitted"] = {to: sorted(rows, key=repr) for to, rows in entry["emitted"].items()}
    assert entries == _in_order(expected(ran.of.batches, order, idle))


@pytest.mark.sampled
def test_what_is_current_after_corrections_is_the_function_over_all_rows(spark: SparkSession, ran: Ran) -> None:
    correct(spark, ran.lake, told, lambda: NOW)
    batches = [[Row(*row) for row in batch] for batch in ran.of.batches]
    for to, lines in over_all_rows(batches).items():
        rows = read(spark, ran.lake, told, to or "current", "id", "_at", *told.output_schemas[to].names)
        current_lines = [
            (key, int((when - T0).total_seconds()), "nine" if to == "failed" else text) for key, when, text, *_ in rows
        ]
        assert sorted(current_lines, key=repr) == lines, to


def test_pipelines_have_late_rows_timers_failures_and_state_that_stays() -> None:
    """Guards against laws that hold because nothing happened."""
    every = [drawn(number) for number in range(PIPELINES)]
    entries = [
        entry
        for of in every
        for _, order, idle in of.functions
        for entry in in_words(expected(of.batches, order, idle)).values()
    ]
    for to in ("", "side", "failed"):
        assert any(to in entry["emitted"] for entry in entries)
    assert any(late for entry in entries for *_, (_, late) in entry["emitted"].get("", []))
    assert any(text and "s" in text for entry in entries for *_, (text, _) in entry["emitted"].get("", []))
    assert any(entry["timers"] for entry in entries) and any(entry["state"] for entry in entries)
    assert {of.dies_in for of in every} == {0, 1} == {of.idle for of in every}
