"""However a log is cut into steps, and wherever one of them is killed, the tables of a view are the same."""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from streaming import Lake, Pipeline, drain
from streaming.declare.operator import STATE
from streaming.declare.windowed import Windowed
from streaming.log.batches import Batch, batches_after
from streaming.operators.progress import Progress
from streaming.views.steps import FoldedSteps, SessionSteps, WindowSteps
from streaming.views.updates import updates_of
from tests.laws.cases import CASES, feed
from tests.laws.readings import VIEWS, pipeline
from tests.support.feeds import land
from tests.support.instants import NOW
from tests.support.killed import Killed, killed_at
from tests.support.seeds import draws

SEQUENCES = max(2, min(5, CASES // 4), CASES // 40)
"""How often each view is cut at random and killed; every other time rows are folded."""


@pytest.fixture(params=[view.name for view in VIEWS])
def view(request: pytest.FixtureRequest) -> Windowed:
    return pipeline(feed(0).files_per_batch, keep_raw=feed(0).keep_raw).view(request.param)


@pytest.fixture
def logged(two_partitions: SparkSession, lake: Lake, view: Windowed) -> Lake:
    """A log of many batches, followed by the view in as few steps as there are drains."""
    declared = Pipeline(view.of, (view,))
    for number, files in enumerate(feed(0).drains):
        for lines in files:
            land(view.of.source.location(lake), lines)
        drain(two_partitions, lake, declared, end_of_input=number == len(feed(0).drains) - 1, now=lambda: NOW)
    return lake


def pieces(batches: Sequence[Batch], chance: random.Random) -> list[Sequence[Batch]]:
    """The batches in order, cut at one to four random places."""
    cuts = sorted(chance.sample(range(1, len(batches)), min(chance.randint(1, 4), len(batches) - 1)))
    return [batches[start:end] for start, end in zip([0, *cuts], [*cuts, len(batches)], strict=True)]


def rows(uri: str) -> list[str]:
    """The rows as text, sorted; a list that is kept as state has no order of its own."""
    table = DeltaTable(uri).to_pyarrow_table()
    columns = sorted(set(table.column_names) - {"_written_at"})
    return sorted(
        str({name: sorted(map(str, value)) if isinstance(value, list) else value for name, value in row.items()})
        for row in table.select(columns).to_pylist()
    )


@pytest.mark.sampled
def test_cuts_do_not_matter(
    spark: SparkSession, logged: Lake, view: Windowed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = batches_after(logged, view.of, -1)
    chance = draws("cuts", view.name)
    tables = [
        logged.first(view),
        *([logged.table(view, STATE)] if view.window.merging else []),
        *([logged.updates(view)] if view.updated else []),
    ]
    # Before each commit of a step in turn; that of panes, where rows are folded, is one more.
    places, died = itertools.cycle(range(1, len(tables) + 2)), set[int]()
    for sequence in range(SEQUENCES):
        # Every other sequence folds rows into panes whenever it can, two of three put them together by pane, and one of
        # three leaves few rows to Arrow.
        monkeypatch.setattr("streaming.views.steps.FOLDED_FROM", sequence % 2 or 1_000_000)
        monkeypatch.setattr("streaming.views.steps.GATHERED_FROM", sequence % 3 or 1_000)
        monkeypatch.setattr("streaming.views.arrow_results.MOST_ROWS", 0 if sequence % 3 else 1_000)
        lake = Lake(str(tmp_path / str(sequence)))
        shutil.copytree(logged.log(view.of), lake.log(view.of))
        for piece in pieces(batches, chance):
            with monkeypatch.context() as dying:
                killed_at(place := next(places), dying)
                try:
                    _follow(spark, lake, view, piece)
                except Killed:
                    died.add(place)
            # Another process: it goes by what the tables say.
            _follow(spark, lake, view, piece)
        assert _steps(spark, lake, view).position() == Progress.of(view, None).after({view.of.name: batches})
        for uri in tables:
            assert rows(uri.replace(logged.root, lake.root)) == rows(uri), f"sequence {sequence}"
    assert died >= {*range(1, len(tables) + 1)}


def _follow(spark: SparkSession, lake: Lake, view: Windowed, batches: Sequence[Batch]) -> None:
    """What a process does that begins with these batches, some of which may be followed already."""
    steps = _steps(spark, lake, view)
    steps.repair()
    rest = [batch for batch in batches if batch.number > steps.position().batch]
    if rest:
        steps.step({view.of.name: rest}, lambda: NOW)
    if view.updated:
        updates_of(spark, lake, view, steps.logs[view.of.name]).follow(batches[-1], lambda: NOW)


def _steps(spark: SparkSession, lake: Lake, view: Windowed) -> WindowSteps[Windowed]:
    kind = SessionSteps if view.window.merging else FoldedSteps
    return kind(spark, lake, view)
