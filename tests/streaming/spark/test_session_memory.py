"""What follows from a declaration is made once in a session."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from functools import partial
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from docs.examples.late_counts import count_by_sensor
from streaming.spark import remembered


@pytest.fixture
def session() -> SparkSession:
    """Anything that things can be remembered by."""
    return cast(SparkSession, SimpleNamespace())


def test_the_same_declaration_is_looked_at_once_and_another_one_again(session: SparkSession) -> None:
    made = count()
    keys: list[Hashable] = [
        ("results", count_by_sensor, "columns"),
        ("results", replace(count_by_sensor), "columns"),
        ("results", count_by_sensor, "more columns"),
        ("results", replace(count_by_sensor, name="other"), "columns"),
        ("updates", count_by_sensor, "columns"),
    ]
    assert [remembered(session, key, lambda: next(made)) for key in keys] == [0, 0, 1, 2, 3]


def test_each_session_remembers_its_own(session: SparkSession) -> None:
    other = cast(SparkSession, SimpleNamespace())
    assert [remembered(each, "key", partial(id, each)) for each in (session, other)] == [
        id(session),
        id(other),
    ]


def test_what_cannot_be_a_key_is_made_each_time(session: SparkSession) -> None:
    made, of_a_user = count(), cast(Any, ["a source without a hash"])
    assert [remembered(session, ("results", of_a_user), lambda: next(made)) for _ in range(2)] == [0, 1]


def test_a_process_that_sees_many_declarations_remembers_a_bounded_number(
    session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming.spark.session_memory._MOST", 3)
    for number in range(10):
        remembered(session, number, partial(int, number))
    (kept,) = vars(session).values()
    assert len(kept) <= 3 and kept[9] == 9
