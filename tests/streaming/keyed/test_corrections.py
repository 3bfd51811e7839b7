"""Corrections of keyed functions on Spark: by day, killed between any two commits, of two streams and with rules."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from streaming.audit.laws import audit
from streaming.base.errors import OperatorError
from streaming.declare.delivery import Delivery
from streaming.declare.keyed import Keyed
from streaming.declare.pipeline import Pipeline
from streaming.lake.lake import Lake
from streaming.operations.rebuild import rebuild
from streaming.operators.runtime import runtime_of
from streaming.sinks.files import JsonLines
from streaming.tables.storage import location
from tests.streaming.keyed.connected_oracle import controls, lefts, rights, ruled, said
from tests.streaming.keyed.corrections_oracle import Batch, Row, over_all_rows, told
from tests.support.consumer import Consumer
from tests.support.delivering import Courier
from tests.support.instants import NOW, T0, at, ms
from tests.support.killed import Killed, killed_at
from tests.support.runs import run, tuples
from tidemark.testing import correct, land_all, play

SEED = 31
SHIFT = 24 * 3600 - 20
"""Seconds: what the oracle calls 20 is midnight, so that sessions lie on two days."""

calm = replace(told, on_error="pause")
"""Of rows for which it raises, the laws that need no Spark tell."""

PIPELINE = Pipeline(calm.streams[0], (calm,))
DELIVERY = Delivery(
    "told_out", calm, JsonLines("told_out", by="none"), "current", select={"id": "id", "at": "_at", "said": "said"}
)


def drawn(draw: random.Random) -> list[Batch]:
    """Batches that move on in time, a third of whose rows come behind the clock."""
    return [
        [
            Row(draw.choice("pqr"), max(0, first + draw.randrange(6) - draw.choice([0, 0, 7])), draw.randrange(9))
            for _ in range(7)
        ]
        for first in (2, 8, 14, 18, 22, 28)
    ]


BATCHES = drawn(random.Random(SEED))
FIRST, SECOND = BATCHES[:4], BATCHES[4:]


def payloads(batch: Batch) -> list[dict[str, Any]]:
    return [{"id": key, "timestamp": ms(at(SHIFT + when)), "temperature": value} for key, when, value in batch]


def current(spark: SparkSession, lake: Lake, keyed: Keyed) -> dict[str, list[tuple[str, int, Any]]]:
    """What is current of each output, in the oracle's words."""
    lines_by_output = {}
    for to in keyed.output_schemas:
        rows = tuples(runtime_of(keyed, lake).readable[to or "current"](spark), "id", "_at", "said")
        lines = [(key, int((when - T0).total_seconds()) - SHIFT, text) for key, when, text in rows]
        lines_by_output[to] = sorted(lines, key=repr)
    return lines_by_output


def expected(batches: list[Batch]) -> dict[str, list[tuple[str, int, Any]]]:
    lines = over_all_rows(batches)
    return {to: lines[to] for to in calm.output_schemas}


def told_of(spark: SparkSession, lake: Lake) -> set[str]:
    """What a consumer of the delivery should hold."""
    rows = tuples(runtime_of(calm, lake).readable["current"](spark), "id", "_at", "said")
    return {
        json.dumps({"id": key, "at": f"{when:%Y-%m-%dT%H:%M:%SZ}", "said": text}, sort_keys=True)
        for key, when, text in rows
    }


def broken(spark: SparkSession, lake: Lake, pipeline: Pipeline) -> list[str]:
    return [f"{each.law} of {each.subject}" for each in audit(spark, lake, pipeline) if not each.holds]


@pytest.fixture(scope="module")
def followed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake with the first batches, which are corrected while some sessions are open."""
    lake = Lake(str(tmp_path_factory.mktemp("followed") / "lake"))
    run(spark, lake, PIPELINE, *map(payloads, FIRST))
    assert correct(spark, lake, calm, lambda: NOW), "rows came late"
    assert Courier(spark, lake, DELIVERY).deliver() >= 1
    return lake


@pytest.fixture(scope="module")
def first_corrected(followed: Lake, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The same, to be read only: the files that a copy has taken in are new to it."""
    return copied(followed, tmp_path_factory.mktemp("first"))


@pytest.fixture(scope="module")
def gone_on(spark: SparkSession, followed: Lake, first_corrected: Lake) -> Lake:
    """The other batches have come since."""
    run(spark, followed, PIPELINE, *map(payloads, SECOND))
    return followed


def copied(lake: Lake, folder: Path) -> Lake:
    shutil.copytree(lake.root, folder / "lake")
    return Lake(str(folder / "lake"))


def test_what_is_corrected_is_the_function_over_all_rows_so_far(spark: SparkSession, first_corrected: Lake) -> None:
    assert current(spark, first_corrected, calm) == expected(FIRST)
    first = tuples(runtime_of(calm, first_corrected).readable["first"](spark), "id", "_at", "said")
    assert first != tuples(runtime_of(calm, first_corrected).readable["current"](spark), "id", "_at", "said")
    assert runtime_of(calm, first_corrected).plan(spark) == []


@pytest.mark.long
def test_a_correction_that_is_killed_between_two_commits_is_made_whole_by_the_next(
    spark: SparkSession, gone_on: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = copied(gone_on, tmp_path)
    days = [entry.day for entry in runtime_of(calm, lake).plan(spark)]
    assert [str(day) for day in days] == ["2026-01-01", "2026-01-02"], "also where only a session has gone on"
    # Between two outputs of a day, and between two days.
    for kill in (2, 4):
        with monkeypatch.context() as dying, pytest.raises(Killed):
            killed_at(kill, dying)
            runtime_of(calm, lake).correct(spark, days, lambda: NOW)
        assert [entry.day for entry in runtime_of(calm, lake).plan(spark)] == days[kill // 4 :]
    correct(spark, lake, calm, lambda: NOW)
    assert current(spark, lake, calm) == expected(BATCHES)
    assert runtime_of(calm, lake).plan(spark) == []

    # Whoever was told of the first correction hears what this one changes.
    held = Consumer(Path(lake.root, "told_out"), DELIVERY.identity)
    assert held.holds() != told_of(spark, lake)
    assert Courier(spark, lake, DELIVERY).deliver() >= 1
    assert held.holds() == told_of(spark, lake)


@pytest.mark.long
def test_what_is_built_anew_is_corrected_at_once_and_an_earlier_batch_has_its_own_corrections(
    spark: SparkSession, gone_on: Lake
) -> None:
    then = gone_on.as_of({"readings": len(FIRST) - 1})
    assert current(spark, then, calm) == expected(FIRST)
    rebuild(spark, gone_on, PIPELINE, calm, now=lambda: NOW)
    assert current(spark, gone_on, calm) == expected(BATCHES)


def test_without_idle_nothing_is_corrected_and_the_way_out_is_told(spark: SparkSession, first_corrected: Lake) -> None:
    endless = runtime_of(replace(calm, idle=None), first_corrected)
    assert endless.plan(spark) == []
    assert "corrections" not in endless.readable
    with pytest.raises(OperatorError, match=r"'told' has no idle.*idle='1 day', and run `tidemark rebuild told`"):
        endless.correct(spark, [], lambda: NOW)
    with pytest.raises(OperatorError, match="of order 'arrival', in which late rows come like all others"):
        runtime_of(replace(calm, order="arrival"), first_corrected).correct(spark, [], lambda: NOW)


both = replace(said, idle="3 seconds")
by_rule = replace(ruled, order="event", idle="3 seconds")
CONNECTED = Pipeline(name="connected", streams=(lefts, rights, controls), operators=(both, by_rule))


@pytest.mark.long
def test_late_rows_of_two_streams_and_with_rules_come_in_their_place(spark: SparkSession, lake: Lake) -> None:
    def rows(*of: tuple[str, int, int]) -> list[dict[str, Any]]:
        return [{"id": key, "at": at(when), "n": value} for key, when, value in of]

    batches: list[dict[str, Any]] = [
        {
            "controls": [{"id": "a", "version": 1, "at": at(0)}],
            "lefts": rows(("a", 1, 1), ("a", 9, 2), ("b", 9, 0)),
            "rights": rows(("a", 2, 0), ("b", 8, 1), ("a", 12, 0)),
        },
        {"controls": [{"id": "a", "version": 2, "at": at(0)}], "lefts": rows(("a", 3, 1), ("a", 13, 1), ("b", 12, 1))},
        {"rights": rows(("b", 7, 2), ("a", 4, 1), ("b", 15, 2)), "lefts": rows(("a", 10, 2), ("b", 14, 1))},
    ]
    for batch in batches:
        for stream in (controls, lefts, rights):
            if stream.name in batch:
                land_all(lake, stream, [{**row, "at": row["at"].isoformat()} for row in batch[stream.name]])
        run(spark, lake, CONNECTED)
    for keyed, reads in ((both, ("lefts", "rights")), (by_rule, ("controls", "lefts"))):
        correct(spark, lake, keyed, lambda: NOW)
        done = play(keyed, *({name: batch[name] for name in reads if name in batch} for batch in batches))
        assert done.current != done.outputs, "some rows came late"
        rows_of = runtime_of(keyed, lake).readable["current"](spark)
        assert sorted(tuples(rows_of.drop("_corrected", "_day"))) == sorted(done.current[""])

    # An audit finds a correction that says something else; what waits is not broken.
    altered = DeltaTable(location(lake.corrections(by_rule)))
    altered.update(updates={"rule": "7"}, predicate="not _retracted")
    shutil.rmtree(lake.corrections(both))
    assert broken(spark, lake, CONNECTED) == ["convergence of ruled", "idempotence of ruled"]
