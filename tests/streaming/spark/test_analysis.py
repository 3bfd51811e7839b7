"""A declaration is analyzed once in a session."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from docs.examples.late_counts import count_by_sensor
from streaming.spark.analysis import Analysis


class Looks(Analysis[Any]):
    """How often each of its kind was made."""

    made = 0

    @cached_property
    def number(self) -> int:
        """One more than the one before."""
        type(self).made += 1
        return self.made


class OtherLooks(Looks):
    """Another kind."""

    made = 0


@pytest.fixture
def session() -> SparkSession:
    """Anything that holds analyses."""
    Looks.made = OtherLooks.made = 0
    return cast(SparkSession, SimpleNamespace())


def test_equal_declarations_over_equal_columns_are_looked_at_once_and_others_again(session: SparkSession) -> None:
    columns = {"readings": "columns"}
    analyses = [
        Looks.once(session, count_by_sensor, columns),
        Looks.once(session, replace(count_by_sensor), dict(columns)),
        Looks.once(session, count_by_sensor, {"readings": "more columns"}),
        Looks.once(session, replace(count_by_sensor, name="other"), columns),
        OtherLooks.once(session, count_by_sensor, columns),
    ]
    assert [analysis.number for analysis in analyses] == [1, 1, 2, 3, 1]


def test_each_session_has_its_own(session: SparkSession) -> None:
    other = cast(SparkSession, SimpleNamespace())
    assert [Looks.once(each, "declared").spark for each in (session, other)] == [session, other]


def test_of_what_has_no_hash_there_is_one_each_time(session: SparkSession) -> None:
    of_a_user = ["a source without a hash"]
    assert [Looks.once(session, of_a_user).number for _ in range(2)] == [1, 2]


def test_a_process_that_sees_many_declarations_has_a_bounded_number(
    session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming.spark.analysis._MOST", 3)
    for number in range(10):
        Looks.once(session, number)
    (made,) = vars(session).values()
    assert len(made) <= 3 and Looks.once(session, 9) in made.values()
