"""Days and keys whose results have changed since a revision: those that a model behind a view computes again."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import Joined, Lake, Pipeline, RowChoice, changed, retract
from streaming.base import DeclarationError, ReadError
from streaming.changes import publish
from streaming.operations.erasure import Person, erase
from streaming.reading.changed import Changed
from tests.support.delivering import by_id, reading, readings
from tests.support.instants import NOW
from tests.support.runs import run
from tidemark.testing import correct

PIPELINE = Pipeline(readings, (by_id,))
ONE_DAY = 86_400.0
FIRST, SECOND = date(2026, 1, 1), date(2026, 1, 2)


def parts(found: Changed) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in found.parts.to_pylist()]


def corrected(spark: SparkSession, lake: Lake) -> None:
    assert correct(spark, lake, by_id, lambda: NOW)
    publish(spark, lake, by_id)


def test_days_and_keys_that_late_rows_changed_are_told_and_no_others(spark: SparkSession, lake: Lake) -> None:
    """```
    first day   a@1=5 b@3=7
    second day  a@1=1 ... a@40=1     revision 0
    late        a@2=2                revision 1: the window of a at 0 of the first day
    later       b@70=1 ... a@90=1    revision 2: one more window of a, and one of b, of the second day
    ```
    """
    with pytest.raises(ReadError, match=r"nothing of 'by_id' is published yet in the lake .* `tidemark run readings`"):
        changed(PIPELINE, by_id, lake=lake)

    on_time = [reading("a", 1, 5), reading("b", 3, 7), reading("a", ONE_DAY + 1, 1), reading("a", ONE_DAY + 40, 1)]
    run(spark, lake, PIPELINE, on_time)
    all_of_it = changed(PIPELINE, by_id, lake=lake)
    assert (all_of_it.since, all_of_it.revision, all_of_it.by) == (-1, 0, ("_day",))
    assert parts(all_of_it) == [(FIRST, 2, 0), (SECOND, 1, 0)]
    assert parts(changed(PIPELINE, by_id, since=0, lake=lake)) == []

    run(spark, lake, PIPELINE, [reading("a", 2, 2)])
    corrected(spark, lake)
    late = changed(PIPELINE, "by_id", since=0, lake=lake)
    assert (late.revision, parts(late)) == (1, [(FIRST, 1, 1)])
    assert parts(changed(PIPELINE, by_id, since=0, by=["id"], lake=lake)) == [("a", 1, 1)]

    run(spark, lake, PIPELINE, [reading("b", ONE_DAY + 70, 1), reading("a", ONE_DAY + 90, 1)])
    assert parts(changed(PIPELINE, by_id, since=1, lake=lake)) == [(SECOND, 2, 0)]
    both = changed(PIPELINE, by_id, since=0, by=["_day", "id"], lake=lake)
    assert parts(both) == [(FIRST, "a", 1, 1), (SECOND, "a", 1, 0), (SECOND, "b", 1, 0)]
    assert str(both) == "readings/by_id, revision 2: 3 keys changed since revision 0"

    with pytest.raises(ReadError, match=r"there is no revision 3 of 'by_id'; there are those up to 2"):
        changed(PIPELINE, by_id, since=3, lake=lake)
    with pytest.raises(ReadError, match=r"has no column 'country' to be told by; it has: _day, id, window_start"):
        changed(PIPELINE, by_id, by=["country"], lake=lake)


def test_a_result_that_came_and_went_has_not_changed(spark: SparkSession, lake: Lake) -> None:
    """```
    a@1=5 a@40=1     revision 0: 1 reading of a in the window at 0
    late  a@2=2      revision 1: 2 readings
    a@2 taken back   revision 2: 1 reading, as at first
    ```
    """
    run(spark, lake, PIPELINE, [reading("a", 1, 5), reading("a", 40, 1)])
    run(spark, lake, PIPELINE, [reading("a", 2, 2)])
    corrected(spark, lake)
    assert parts(changed(PIPELINE, by_id, since=0, lake=lake)) == [(FIRST, 1, 1)]

    retract(spark, lake, PIPELINE, readings, RowChoice(where="value = 2"), "a test", "the test", lambda: NOW)
    corrected(spark, lake)
    now = changed(PIPELINE, by_id, since=0, lake=lake)
    assert (now.revision, parts(now)) == (2, [])
    assert parts(changed(PIPELINE, by_id, since=1, lake=lake)) == [(FIRST, 1, 1)]


def test_nobody_tells_what_stood_before_changes_that_were_forgotten(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, PIPELINE, [reading("a", 1, 5), reading("b", 3, 7), reading("a", 40, 1)])
    run(spark, lake, PIPELINE, [reading("b", 61, 7), reading("b", 90, 7)])
    erase(spark, lake, PIPELINE, Person("id", "a"), now=lambda: NOW)
    publish(spark, lake, by_id)
    newest = changed(PIPELINE, by_id, lake=lake)
    assert parts(newest) == [(FIRST, 2, 0)]
    with pytest.raises(ReadError, match=r"nobody can tell what stood of 'by_id' at revision 0: its changes begin with"):
        changed(PIPELINE, by_id, since=0, lake=lake)
    assert parts(changed(PIPELINE, by_id, since=newest.revision, lake=lake)) == []


def test_an_operator_that_only_adds_rows_is_read_by_batch(lake: Lake) -> None:
    pairs = Joined("pairs", readings, readings, on=("id",), between=("0 seconds", "10 seconds"))
    with pytest.raises(DeclarationError, match=r"'pairs' changes no result: it only adds rows"):
        changed(PIPELINE, pairs, lake=lake)
