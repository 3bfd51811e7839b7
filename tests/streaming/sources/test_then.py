"""Two sources, one after the other: each runs through the contract in its turn, and what cannot follow is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import Files, Generator, Kafka, Then
from streaming.base.errors import DeclarationError, SourceError
from streaming.lake.lake import Lake
from streaming.sources import Reading
from tests.streaming.sources.contract import SourceContract
from tests.streaming.sources.test_files import FilesCase


def nothing(task: int, offset: int) -> None:
    """What a generator makes of a row."""


class HistoryCase(FilesCase):
    """What is delivered is history."""

    def __init__(self, lake: Lake) -> None:
        super().__init__(lake)
        Path(lake.path("live")).mkdir(parents=True)
        self._history = self.source
        self.source = Then(self._history, Files("live"))

    def called(self, lake: Lake) -> str:
        return self._history.location(lake)


class LiveCase(FilesCase):
    """What is delivered comes after a history that was removed once it was read."""

    def __init__(self, lake: Lake) -> None:
        super().__init__(lake)
        self._live = self.source
        self.source = Then(Files("history"), self._live)
        after = self.source.after_end({"history": {}})
        assert after is not None and self.source.after_end(after) is None
        self.memory = after

    def called(self, lake: Lake) -> str:
        return self._live.location(lake)


class TestHistory(SourceContract):
    @pytest.fixture
    def case(self, lake: Lake) -> HistoryCase:
        return HistoryCase(lake)


@pytest.mark.long
class TestLive(SourceContract):
    @pytest.fixture
    def case(self, lake: Lake) -> LiveCase:
        return LiveCase(lake)


@pytest.mark.parametrize(
    ("declared", "advice"),
    [
        (lambda: Then("history", Files("live")), "history of Then is 'history', a str.*Files"),  # type: ignore[arg-type]
        (lambda: Then(Files("history"), Kafka("one:9092", "t", start="latest")), "latest.*would skip.*write the inst"),
        (lambda: Then(Files("a"), Then(Kafka("one:9092", "t", start="latest"), Files("b"))), "latest.*would skip"),
        (lambda: Then(Generator(nothing), Files("live")), "without an end.*rows=1_000"),
    ],
)
def test_a_history_without_an_end_and_a_start_that_leaves_a_gap_are_refused(
    declared: Callable[[], Then], advice: str
) -> None:
    with pytest.raises(DeclarationError, match=advice):
        declared()


def test_three_sources_follow_one_another_each_with_a_checkpoint_of_its_own() -> None:
    three = Then(Files("oldest"), Then(Files("older"), Files("new")))
    memory: Mapping[str, Any] | None = {}
    places = []
    while memory is not None:
        places.append((three.checkpoint("place", memory), three.may_begin_anew(memory)))
        memory = three.after_end(memory)
    # Of files only the checkpoint tells which are in the log: it may be missing only where none is yet.
    assert places == [("place/history", False), ("place/live/history", True), ("place/live/live", True)]
    held: dict[str, Any] = {"history": {}, "live": {"history": {}, "live": {}}}
    assert not three.may_begin_anew(held)


def test_a_log_of_another_source_takes_on_no_history(spark: SparkSession, lake: Lake) -> None:
    with pytest.raises(SourceError, match="does not take on a history afterwards"):
        Then(Files("history"), Files("live")).check_there(spark, Reading(lake, "", {"offsets": {"": 3}}))
