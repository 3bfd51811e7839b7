"""Golden tests of stateless applications on lines, numbers, people, metrics and cities, all in one run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from docs.examples import cities, metrics, numbers, people, words
from streaming import Pipeline, RowFunction, Selected, drain
from streaming.audit.laws import audit
from streaming.base.errors import FunctionError
from streaming.lake.lake import Lake
from streaming.operators.progress import FilterCounts
from streaming.operators.runtime import runtime_of
from tests.support.feeds import land_all
from tests.support.instants import NOW, at
from tests.support.runs import run, tuples

LINES = ("x  y ", "white", "black", "gray", "flinks", "Flink", "aß", "keyword a", "b", "Keyword", "xkeywordx", "  ")
PAIRS = ((-1, 0), (0, 0), (5, 0), (1, 0), (2, 0), (3, 5), (4, 0), (5, 1), (1000, 0), (1001, 0))
PEOPLE = (("A", 17), ("B", 18), ("C", 23))
ETL = Pipeline(
    name="etl",
    streams=(words.lines, numbers.numbers, people.people, metrics.metrics, *cities.pipeline.streams),
    operators=(
        *(*words.pipeline.operators, *numbers.pipeline.operators, people.adults, metrics.registered),
        cities.all_cities,
    ),
)


def reading(id_: str, seconds: float, temperature: float) -> dict[str, Any]:
    return {"id": id_, "at": at(seconds).isoformat(), "temperature": temperature}


@pytest.fixture(scope="module")
def etl(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake after one run of all of them."""
    lake = Lake(str(tmp_path_factory.mktemp("etl")))
    land_all(lake, words.lines, LINES)
    land_all(lake, numbers.numbers, [{"n": n, "other": other} for n, other in PAIRS])
    born = {"birthday": {"year": 2000, "month": 2, "day": 29}, "address": {"street": "Long Lane", "zip": "10115"}}
    land_all(lake, people.people, [{"name": name, "age": age, **born} for name, age in PEOPLE])
    segment = {"source": "a", "ts": at(1).isoformat(), "value": 1.0}
    land_all(lake, metrics.metrics, [{"type": kind, **segment} for kind in ("cpu", "disk", "memory")])
    for city in cities.pipeline.streams:
        land_all(lake, city, [reading("same", 1, 20.0), reading(city.name, 2, 21.0)])
    drain(spark, lake, ETL, now=lambda: NOW)
    return lake


def output(spark: SparkSession, lake: Lake, of: Selected, side: str = "current") -> DataFrame:
    return runtime_of(of, lake).readable[side](spark)


def test_e3_tokens_stand_between_single_spaces_and_empty_ones_at_the_end_are_dropped(
    spark: SparkSession, etl: Lake
) -> None:
    tokens = output(spark, etl, words.words)
    assert tuples(tokens.where("_origin.position = 0"), "_element", "word") == [(0, "x"), (1, ""), (2, "y")]
    assert tokens.where(f"_origin.position = {LINES.index('  ')}").count() == 0


def test_e4_white_comes_once_black_twice_gray_never_and_the_filter_keeps_white_only(
    spark: SparkSession, etl: Lake
) -> None:
    assert tuples(output(spark, etl, words.copies), "text") == [("black",), ("black",), ("white",)]
    assert tuples(output(spark, etl, words.copies, "white"), "text") == [("white",)]


def test_e5_each_integer_becomes_the_next(spark: SparkSession, etl: Lake) -> None:
    rows = output(spark, etl, numbers.computed).where("n between 1 and 4").dropDuplicates(["n"])
    assert tuples(rows, "n", "next") == [(1, 2), (2, 3), (3, 4), (4, 5)]


def test_e6_only_those_older_than_18_are_kept(spark: SparkSession, etl: Lake) -> None:
    assert tuples(output(spark, etl, people.adults), "name", "age") == [("C", 23)]
    assert runtime_of(people.adults, etl).filtered() == {"": FilterCounts(rows_in=3, kept=1)}


def test_e7_a_keyword_is_part_of_the_text_as_it_is_written(spark: SparkSession, etl: Lake) -> None:
    assert tuples(output(spark, etl, words.flink), "text") == [("flinks",)]


def test_e8_upper_case_follows_unicode(spark: SparkSession, etl: Lake) -> None:
    upper = output(spark, etl, words.upper_case)
    assert tuples(upper.where(f"_origin.position = {LINES.index('aß')}"), "text") == [("ASS",)]


def test_e10_a_split_sends_each_row_to_one_of_two_outputs(spark: SparkSession, etl: Lake) -> None:
    large, small = (output(spark, etl, numbers.computed, side).select("n") for side in ("large", "small"))
    assert tuples(large) == [(1001,)]
    assert small.where("n = 1000").count() == 1
    assert tuples(large.union(small)) == tuples(output(spark, etl, numbers.computed), "n")


def test_e11_a_union_has_all_rows_of_all_streams_also_those_that_are_equal(spark: SparkSession, etl: Lake) -> None:
    rows = output(spark, etl, cities.all_cities)
    assert tuples(rows, "id") == [("paris",), ("rio",), ("same",), ("same",), ("same",), ("tokyo",)]
    # Each row says which stream it is from.
    origins = rows.where("id = 'same'").selectExpr("_origin.paris is null p", "_origin.tokyo is null t")
    assert tuples(origins) == [(False, True), (True, False), (True, True)]


def test_e12_a_key_is_computed_from_several_fields_nested_ones_and_whole_records(
    spark: SparkSession, etl: Lake
) -> None:
    # Of the pairs (3, 5), (5, 1) and (5, 0) five is the greater one.
    assert tuples(output(spark, etl, numbers.computed).where("key = 5"), "n") == [(3,), (5,), (5,)]
    keyed = output(spark, etl, people.adults, "keyed").where("name = 'A'")
    whole = {"year": 2000, "month": 2, "day": 29}
    (row,) = keyed.collect()
    assert (row["zip"], row["whole_birthday"].asDict()) == ("10115", whole)
    assert row["second_and_third"].asDict(recursive=True) == {"age": 17, "birthday": whole}


def test_e13_rows_of_unknown_types_are_counted_out(spark: SparkSession, etl: Lake) -> None:
    assert tuples(output(spark, etl, metrics.registered), "type") == [("cpu",), ("memory",)]
    assert runtime_of(metrics.registered, etl).filtered()[""].removed == 1


def test_e15_lines_with_a_keyword_are_counted_and_spread_over_ten_partitions(spark: SparkSession, etl: Lake) -> None:
    assert runtime_of(words.keyword, etl).filtered()[""].kept == 2
    spread = output(spark, etl, words.keyword).repartition(10)
    assert (spread.rdd.getNumPartitions(), spread.count()) == (10, 2)


@pytest.mark.long
def test_e16_placement_changes_no_row_and_is_the_same_when_it_is_done_again(spark: SparkSession, etl: Lake) -> None:
    places = {
        side: tuples(output(spark, etl, numbers.placed, side), "n", "place")
        for side in ("current", "spread", "in_turn", "to_two", "to_one", "to_all")
    }
    everything = sorted(n for n, _ in PAIRS)
    once = {side: rows for side, rows in places.items() if side != "to_all"}
    assert {side: sorted(n for n, _ in rows) for side, rows in once.items()} == dict.fromkeys(once, everything)
    assert [place for n, place in places["current"] if n == -1] == [0]
    assert {place for _, place in places["in_turn"]} == set(range(numbers.PLACES))
    assert {place for _, place in places["to_two"]} == {0, 1}
    assert {place for _, place in places["to_one"]} == {0}
    assert sorted(places["to_all"]) == sorted((n, place) for n in everything for place in range(numbers.PLACES))
    assert all(place in range(numbers.PLACES) for rows in places.values() for _, place in rows)
    # The audit places all rows once more.
    again = [finding for finding in audit(spark, etl, ETL) if finding.subject.startswith("placed")]
    assert len(again) == 2 * len(places)
    assert all(finding.holds for finding in again)


def test_e17_a_function_handles_each_number_once_whichever_task_has_it(spark: SparkSession, etl: Lake) -> None:
    rows = output(spark, etl, numbers.bucketed).where("n in (1, 2, 3)")
    assert tuples(rows, "bucket", "n") == [(0, 2), (1, 1), (1, 3)]


@dataclass(frozen=True)
class Noted:
    """Writes down in a file when it is opened and closed."""

    path: str

    @contextmanager
    def __call__(self, task: int) -> Iterator[None]:
        self.note("open")
        try:
            yield
        finally:
            self.note("close")

    def note(self, what: str) -> None:
        with Path(self.path).open("a") as notes:
            notes.write(f"{what}\n")


def not_thirteen(row: Any, opened: None) -> Iterator[dict[str, Any]]:
    if row.n == 13:
        raise ValueError("thirteen")
    yield {"n": row.n}


def test_e17_a_function_is_opened_and_closed_once_for_each_batch_also_when_it_raises(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    function = RowFunction(not_thirteen, "n bigint", Noted(str(notes)))
    selected = replace(numbers.bucketed, function=function)
    pipeline = Pipeline(numbers.numbers, (selected,))
    run(spark, lake, pipeline, [{"n": 1}, {"n": 2}])
    assert notes.read_text().split() == ["open", "close"]
    with pytest.raises(
        FunctionError, match=r"not_thirteen of selection .bucketed. failed for the row \(n=13, .*ValueError: thirteen"
    ):
        run(spark, lake, pipeline, [{"n": 12}, {"n": 13}])
    assert notes.read_text().split() == ["open", "close"] * 2
    assert tuples(output(spark, lake, selected), "n") == [(1,), (2,)]
