"""Generators: the same rows whenever they are made again, no more of them than are due, and none lost or repeated."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from statistics import fmean, pstdev
from typing import Any

import pytest
from pyspark.sql import SparkSession

from docs.examples.generators import counter, integer
from streaming import Generator, Lake, noise
from streaming.base.errors import DeclarationError, SourceError
from streaming.sources.generator import BEGAN, GeneratorReader
from tests.streaming.sources.contract import Batches, Reader
from tests.support.instants import T0


class Wall:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = T0

    def __call__(self) -> datetime:
        return self.now


def strange(task: int, offset: int) -> Any:
    if offset == 3:
        raise ValueError("no row 3")
    return [b"\xff", "text", None][offset]


def numbers(batches: Batches) -> list[int]:
    return [json.loads(payload)["n"] for number in sorted(batches) for payload, _ in batches[number]]


@pytest.mark.long
def test_a_planned_batch_is_the_same_again_and_each_row_comes_once_until_the_end(
    spark: SparkSession, lake: Lake
) -> None:
    source = Generator(counter, rows=10, rows_per_batch=4)
    reader = Reader(spark, lake, source)
    waiting = source.backlog(lake, reader.checkpoint)
    assert waiting({}).items == 10
    first = reader.die()
    assert numbers(first) == [0, 1, 2, 3] and waiting({}).items == 6
    again = reader.read_on()
    assert again[0] == first[0] and numbers(again) == [*range(10)]
    assert [source.describe_batch(reader.checkpoint, number) for number in sorted(again)] == [
        "task 0 rows 0 to 3",
        "task 0 rows 4 to 7",
        "task 0 rows 8 to 9",
    ]
    origins = [(origin,) for rows in again.values() for _, origin in rows]
    assert source.compare(spark, lake, spark.createDataFrame(origins, f"_origin {source.origin}")).changes == ()
    lacking = spark.createDataFrame(origins[:3] + origins[5:] + origins[-1:], f"_origin {source.origin}")
    assert [change.kind for change in source.compare(spark, lake, lacking).changes] == ["changed"]

    # Without its checkpoint, or with more to come, it goes on where the log ends.
    longer = Reader(spark, lake, Generator(counter, rows=12, rows_per_batch=4))
    longer.checkpoint, longer.memory = lake.path("another"), reader.memory
    assert numbers(longer.read_on()) == [10, 11]


@pytest.mark.long
def test_s4_resettable_counter_goes_on_behind_the_last_row_that_was_committed(spark: SparkSession, lake: Lake) -> None:
    reader = Reader(spark, lake, Generator(counter, rows=5))
    committed = reader.read_on()
    assert numbers(committed) == [0, 1, 2, 3, 4]

    def goes_on(rows: int) -> Reader:
        after = Reader(spark, lake, Generator(counter, rows=rows))
        after.memory = reader.memory
        return after

    read = goes_on(7).die()
    assert numbers(read) == [5, 6], "read, and not committed"
    again = goes_on(12).read_on()
    assert numbers({1: again[1]}) == [5, 6]
    assert numbers(committed | again) == [*range(12)], "without a gap, and without a repetition"


@pytest.mark.parametrize(("rate", "milliseconds"), [(10, 100), (1_000, 1), (0.5, 2_000)])
def test_no_row_comes_before_it_is_due_and_each_tells_when_that_was(rate: float, milliseconds: int) -> None:
    wall = Wall()
    reader = GeneratorReader(integer, 1, rate, None, 100, wall)
    begins = reader.first()
    began = reader.newest(begins)
    assert began["0"] == 1, "the first row is due at once"
    wall.now = T0 + timedelta(milliseconds=3 * milliseconds - 1)
    assert reader.newest(began)["0"] == 3
    wall.now += timedelta(milliseconds=1)
    ends = reader.newest(began)
    assert ends["0"] == 4 and ends[BEGAN] == began[BEGAN]
    rows = [row for piece in reader.pieces(begins, ends) for batch in reader.read(piece) for row in batch.to_pylist()]
    assert [row["due"] for row in rows] == [T0 + number * timedelta(milliseconds=milliseconds) for number in range(4)]
    wall.now -= timedelta(hours=1)
    assert reader.newest(ends) == ends, "a clock that is set back takes nothing back"


def test_what_fell_due_while_nobody_was_there_comes_in_bounded_batches() -> None:
    wall = Wall()
    reader = GeneratorReader(integer, 2, 10, None, 100, wall)
    at = reader.newest(reader.first())
    wall.now += timedelta(hours=1)
    newest = reader.newest(at)
    sizes = []
    while at != newest:
        ends = reader.bounded(at, newest, 100)
        sizes.append(sum(end - first for _, first, end, _ in reader.pieces(at, ends)))
        at = ends
    assert max(sizes) == 100 and sum(sizes) == 2 * 36_000


def test_a_task_more_begins_with_its_first_row_and_one_that_comes_back_goes_on() -> None:
    one, three = (GeneratorReader(integer, tasks, None, 5, 100) for tasks in (1, 3))
    more = GeneratorReader(integer, 3, None, 7, 100)
    done = one.newest(one.first())
    all_done = three.newest(done)
    assert [piece[:3] for piece in three.pieces(done, all_done)] == [(1, 0, 5), (2, 0, 5)]
    fewer = GeneratorReader(integer, 1, None, 6, 100)
    later = fewer.bounded(all_done, fewer.newest(all_done), 100)
    assert [piece[:3] for piece in fewer.pieces(all_done, later)] == [(0, 5, 6)]
    assert [piece[:3] for piece in more.pieces(later, more.newest(later))] == [(0, 6, 7), (1, 5, 7), (2, 5, 7)]


def test_a_row_is_what_the_function_gives_and_an_error_names_the_row() -> None:
    reader = GeneratorReader(strange, 1, None, 4, 100)
    rows = [row["_raw"] for batch in reader.read((0, 0, 3, 0)) for row in batch.to_pylist()]
    assert rows == [b"\xff", b"text", None]
    with pytest.raises(SourceError, match="ValueError at row 3 of task 0: no row 3"):
        list(reader.read((0, 3, 4, 0)))


def test_noise_follows_from_its_seed_alone_and_is_normal() -> None:
    draws = [noise("a", number) for number in range(20_000)]
    assert draws[:100] == [noise("a", number) for number in range(100)]
    assert noise("a", 1) != noise("b", 1)
    assert abs(fmean(draws)) < 0.03 and abs(pstdev(draws) - 1) < 0.02
    assert abs(sum(abs(draw) < 1 for draw in draws) / len(draws) - 0.6827) < 0.01


@pytest.mark.parametrize(
    ("row", "options", "text"),
    [
        (7, {}, "give it a function"),
        (lambda task, offset: "x", {}, "define it in a module"),
        (counter, {"rows_per_second": 0}, "rows_per_second=0"),
        (counter, {"rows": 0}, "rows=0"),
        (counter, {"tasks": 1.5}, "tasks=1.5"),
        (counter, {"rows_per_batch": 0}, "rows_per_batch=0"),
    ],
)
def test_a_generator_that_makes_nothing_is_refused(row: Any, options: Mapping[str, Any], text: str) -> None:
    with pytest.raises(DeclarationError, match=text):
        Generator(row, **options)
