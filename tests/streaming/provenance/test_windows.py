"""Why a result of a view is what it is: its rows, found in the log, give it again; each other one says why not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from streaming import Lake, Pipeline, Why, why
from streaming.base import ReadError
from streaming.changes import publish
from streaming.provenance import log_rows
from tests.support.delivering import by_id, reading, readings, visits
from tests.support.instants import NOW, at
from tests.support.runs import run
from tidemark.testing import correct

ONE_DAY = 86_400.0
filtered = replace(by_id, name="large", where="value > 1")
once = replace(by_id, name="once", distinct=("value",))
PIPELINE = Pipeline(readings, (by_id, visits, filtered, once))


@pytest.fixture(scope="module")
def story(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """```
    batch 0    a@1=5 a@3=1 a@4=1 b@3=7, a@2 without a value: rejected
    batch 1    a@40=1                       the window of a at 0 closes: 3 readings, 7
    batch 2    a@2=2 b@86400=1 b@86440=1    late for it; a day later
    corrected                               4 readings, 9
    batch 3    a@6=4                        late, and waits
    ```
    """
    lake = Lake(str(tmp_path_factory.mktemp("why") / "lake"))
    run(
        spark,
        lake,
        PIPELINE,
        [reading("a", 1, 5), reading("a", 3), reading("a", 4), reading("b", 3, 7), reading("a", 2, None)],
    )
    run(spark, lake, PIPELINE, [reading("a", 40)])
    run(spark, lake, PIPELINE, [reading("a", 2, 2), reading("b", ONE_DAY), reading("b", ONE_DAY + 40)])
    for view in PIPELINE.views:
        assert correct(spark, lake, view, lambda: NOW)
        publish(spark, lake, view)
    run(spark, lake, PIPELINE, [reading("a", 6, 4)])
    yield lake


def asked(spark: SparkSession, lake: Lake, view: Any = by_id, **more: Any) -> Why:
    key = more.pop("key", {"id": "a", "window_start": "2026-01-01T00:00"})
    return why(PIPELINE, view, key, lake=lake, spark=spark, **more)


def counted(answer: Why) -> list[tuple[int, int, bool]]:
    """The rows that count: batch, value, and whether they came late."""
    return sorted((row.batch, row.values["value"], row.late) for row in answer.counting)


def test_the_rows_that_count_give_what_is_current(spark: SparkSession, story: Lake) -> None:
    answer = asked(spark, story)
    assert (answer.agrees, answer.holds, answer.said) == (
        True,
        True,
        "recomputed from exactly these rows, it is the same",
    )
    assert answer.published == answer.recomputed
    assert (answer.published[0]["readings"], answer.published[0]["total"]) == (4, 9)
    assert counted(answer) == [(0, 1, False), (0, 1, False), (0, 5, False), (2, 2, True)]
    # An oracle in plain Python over the rows themselves.
    assert (len(answer.counting), sum(row.values["value"] for row in answer.counting)) == (4, 9)


def test_a_row_that_does_not_count_says_why(spark: SparkSession, story: Lake) -> None:
    answer = asked(spark, story)
    left = [(row.batch, row.reason) for row in answer.inputs if not row.counts]
    assert left == [(3, "late: its window was closed at the watermark 2026-01-02 00:00:35; it waits for a correction")]
    assert "1 late row waits for `tidemark correct readings --day 2026-01-01`" in answer.notes


def test_a_rejected_row_of_the_group_is_told_with_its_reasons(spark: SparkSession, story: Lake) -> None:
    (rejected,) = asked(spark, story).rejected
    assert (rejected.batch, rejected.reasons, rejected.certain) == (
        0,
        ("value_present: not (value is not null)",),
        True,
    )
    assert json.loads(rejected.payload or "")["id"] == "a" and rejected.place.endswith("0000.json, line 5")
    assert asked(spark, story, key={"id": "b", "window_start": "2026-01-01T00:00"}).rejected == ()


def test_the_first_result_is_of_the_rows_on_time(spark: SparkSession, story: Lake) -> None:
    answer = asked(spark, story, what="first")
    assert (answer.agrees, counted(answer)) == (True, [(0, 1, False), (0, 1, False), (0, 5, False)])
    assert answer.published[0]["total"] == 7


def test_each_change_is_told_with_the_late_rows_that_caused_it(spark: SparkSession, story: Lake) -> None:
    answer = asked(spark, story)
    late = next(row for row in answer.inputs if row.batch == 2)
    first, corrected = answer.changes
    assert (first.revision, first.reason, first.was) == (0, "first", ()) and first.now[0]["total"] == 7
    assert (corrected.reason, corrected.was[0]["total"], corrected.now[0]["total"]) == ("correction", 7, 9)
    assert (corrected.through, corrected.causes) == ({"readings": 2}, (late.place,))
    assert first.told_at and corrected.told_at and corrected.corrected_at
    assert first.told_at < corrected.corrected_at <= corrected.told_at


def test_a_row_that_where_leaves_out_and_a_copy_are_told_apart(spark: SparkSession, story: Lake) -> None:
    large = asked(spark, story, filtered)
    assert (large.agrees, counted(large)) == (True, [(0, 5, False), (2, 2, True)])
    assert {row.reason for row in large.inputs if row.batch == 0 and not row.counts} == {"left out by where: value > 1"}
    distinct = asked(spark, story, once)
    assert (distinct.agrees, counted(distinct)) == (True, [(0, 1, False), (0, 5, False), (2, 2, True)])
    assert [row.reason for row in distinct.inputs if row.batch == 0 and row.reason] == [
        "copy 2 of a row that counts once"
    ]


def test_a_session_has_the_rows_that_late_ones_joined(spark: SparkSession, story: Lake) -> None:
    key = {"id": "a", "window_start": "2026-01-01T00:00:01"}
    answer, first = asked(spark, story, visits, key=key), asked(spark, story, visits, key=key, what="first")
    assert (answer.agrees, answer.published[0]["readings"]) == (True, 4)
    assert sorted(row.values["at"] for row in answer.counting) == [at(1), at(2), at(3), at(4)]
    assert (first.agrees, sorted(row.values["at"] for row in first.counting)) == (True, [at(1), at(3), at(4)])


def test_as_of_an_older_batch_the_number_is_that_of_then(spark: SparkSession, story: Lake) -> None:
    answer = asked(spark, story, as_of=1)
    assert (answer.said, answer.recomputed) == ("recomputed from exactly these rows, it is the same", answer.published)
    assert (answer.agrees, answer.published[0]["total"]) == (True, 7)
    assert counted(answer) == [(0, 1, False), (0, 1, False), (0, 5, False)]


def test_only_the_files_of_the_group_are_read(
    spark: SparkSession, story: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = list[str]()
    read = log_rows.rows_between

    def counting(table: DeltaTable, *arguments: Any, **more: Any) -> Any:
        rows, files = read(table, *arguments, **more)
        opened.append(f"{files.read}/{files.of}")
        return rows, files

    monkeypatch.setattr(log_rows, "rows_between", counting)
    answer = asked(spark, story, key={"id": "b", "window_start": "2026-01-02T00:00"})
    log = DeltaTable(story.log(readings))
    days = log.get_add_actions(flatten=True)["partition._day"].to_pylist()
    of_day = sum(str(day) == "2026-01-02" for day in days)
    assert (answer.agrees, opened, str(answer.files)) == (
        True,
        [f"{of_day}/{len(days)}"],
        f"{of_day} of {len(days)} files",
    )
    assert of_day < len(days)


def test_a_published_number_that_its_rows_do_not_give_is_told(spark: SparkSession, story: Lake, tmp_path: Path) -> None:
    shutil.copytree(story.root, tmp_path / "lake")
    lake = Lake(str(tmp_path / "lake"))
    current = DeltaTable(lake.table(by_id, "current"))
    current.update(predicate="id = 'a' and total = 9", updates={"total": "10"})
    answer = asked(spark, lake)
    assert (answer.agrees, answer.holds) == (False, False)
    assert answer.said.endswith("IT IS NOT THE SAME: total is 10 and should be 9")


def test_a_key_without_a_result_names_those_that_come_near(story: Lake) -> None:
    with pytest.raises(ReadError, match=r"no result of view 'by_id' has id=c window_start=2026-01-01T00:00") as raised:
        why(PIPELINE, by_id, {"id": "c", "window_start": "2026-01-01T00:00"}, lake=story)
    near = "id=a window_start=2026-01-01T00:00:00 window_end=2026-01-01T00:00:10"
    assert raised.value.choices and raised.value.choices[0] == near
    with pytest.raises(ReadError, match=r"id=b is true of 2 results of view 'by_id': id=b window_start=2026-01-01T00"):
        why(PIPELINE, by_id, {"id": "b"}, lake=story)
    with pytest.raises(
        ReadError, match=r"'value' does not tell which result .* Name some of: id, window_start, window_e"
    ):
        why(PIPELINE, by_id, {"value": 1}, lake=story)
    with pytest.raises(ReadError, match=r"window_start='noon' is no instant"):
        why(PIPELINE, by_id, {"window_start": "noon"}, lake=story)


def test_a_window_that_is_still_open_tells_its_rows_so_far(spark: SparkSession, story: Lake) -> None:
    answer = asked(spark, story, key={"id": "b", "window_start": "2026-01-02T00:00:40"})
    assert (answer.agrees, answer.published, answer.recomputed[0]["readings"]) == (None, (), 1)
    assert answer.said == "nothing is published; its rows so far give 1 row"
    assert answer.notes == (
        "its window is open: the watermark is 2026-01-02 00:00:35 and has to pass 2026-01-02 00:00:50",
    )


def test_what_decided_and_which_versions_were_read_is_told(spark: SparkSession, story: Lake) -> None:
    answer = asked(spark, story, key={"id": "a", "window_start": at(0)})
    assert answer.rules["readings: value_present"] == "value is not null"
    assert answer.rules["late"] == "correct" and "5 seconds" in answer.rules["readings: clock"]
    tables = answer.versions["tables"]
    assert tables["readings/log"] == DeltaTable(story.log(readings)).version()
    assert set(tables) == {"readings/log", "readings/by_id", "readings/by_id_corrections", "readings/by_id_changes"}
    document = json.loads(json.dumps(answer.document()))
    assert document["files"]["read"] <= document["files"]["of"]
    assert document["inputs"][0]["values"]["id"] == "a"
