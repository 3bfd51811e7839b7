"""The small pieces made of keyed functions, by the applications that they are for."""

from __future__ import annotations

import random
import zlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from docs.examples.hot_sensors import BUCKETS, hits_by_sensor, hits_per_bucket
from streaming.base.errors import DeclarationError
from streaming.clocks import BoundedOutOfOrderness
from streaming.declare.keyed import Keyed
from streaming.keyed.library import (
    absence,
    bucket_of,
    deduplicated,
    even_shares,
    flat_mapped,
    followed_by,
    iterated,
    not_followed_by,
    reduced,
    rolling,
    top,
)
from tests.streaming.keyed.functions import jumps, readings, rows
from tests.support.instants import at
from tidemark.testing import Played, play


def played(keyed: Keyed, drawn: str, **playing: Any) -> Played:
    """The function over batches that are separated by `|`."""
    return play(keyed, *(rows(batch) for batch in drawn.split("|")), **playing)


def test_k1_rolling_sum_per_key() -> None:
    sums = rolling("sums", readings, {"total": "sum(temperature)"}, by=("id",))
    done = played(sums, "1@1=2, 2@2=3 | 2@3=2, 1@4=5")
    assert [row[2] for row in done.results if row[0] == "1"] == [2.0, 7.0]
    assert [row[2] for row in done.results if row[0] == "2"] == [3.0, 5.0]


def test_k2_rolling_minimum_and_whole_rows_of_which_the_first_wins_a_tie() -> None:
    aggregates = {
        "least": "min(temperature)",
        "warmest": "max_by(*, temperature)",
        "coldest": "min_by(*, temperature)",
        "seen": "count(*)",
    }
    done = played(
        rolling("extremes", readings, aggregates, by=("id",)), "a@1=5, a@2=3 | a@3, a@4=5, a@5=4, a@6=1, a@7=1"
    )
    assert [row[2] for row in done.results] == [5.0, 3.0, 3.0, 3.0, 3.0, 1.0, 1.0]
    assert {row[3]["event_time"] for row in done.results} == {1767225601000000}
    assert [row[4]["temperature"] for row in done.results] == [5.0, 3.0, 3.0, 3.0, 3.0, 1.0, 1.0]
    assert done.results[-1][4] == done.results[-2][4], "the one that came first"
    assert [row[5] for row in done.results] == [1, 2, 3, 4, 5, 6, 7]


def concatenated(row: Any, before: Mapping[str, Any] | None) -> dict[str, Any]:
    return {"values": [*(before or {"values": []})["values"], row.temperature]}


def test_k3_reduce_hands_a_function_what_it_made_before() -> None:
    lists = reduced("lists", readings, function=concatenated, result="values array<double>", by=("id",))
    done = played(lists, "en@1=1, fr@2=2 | en@3=3")
    assert [(row[0], row[2]) for row in done.results] == [("en", [1.0]), ("fr", [2.0]), ("en", [1.0, 3.0])]


def jump(row: Any, before: Mapping[str, Any] | None) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    far = before is not None and abs(row.temperature - before["previous"]) > 1.7
    alert = {"temperature": row.temperature, "jump": abs(row.temperature - before["previous"])} if before else {}
    return [alert] if far else [], {"previous": row.temperature}


def forget_at_zero(row: Any, before: Mapping[str, Any] | None) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    return [], {"previous": row.temperature} if row.temperature else None


def test_k7_flat_map_with_state_is_the_same_as_a_keyed_function() -> None:
    shape: dict[str, Any] = {"by": ("id",), "state": "previous double"}
    mapped = flat_mapped("mapped", readings, function=jump, result="temperature double, jump double", **shape)
    drawn = "a@1=20, a@2=21.5, b@3=0.5 | a@4=23.5, a@5=23, b@6=40"
    assert (
        played(mapped, drawn).results
        == played(jumps, drawn).results
        == [
            ("a", at(4), 23.5, 2.0),
            ("b", at(6), 40.0, 39.5),
        ]
    )
    forgetting = flat_mapped("forgetting", readings, function=forget_at_zero, result="value double", **shape)
    assert set(played(forgetting, "a@1=1, b@2=2 | a@3=0").state) == {("b",)}


def hot(drawn: str, buckets: int = BUCKETS) -> list[dict[str, Any]]:
    """Readings with the bucket that the stream derives."""
    return [{**row, "bucket": zlib.crc32(row["id"].encode()) % buckets} for row in rows(drawn)]


@pytest.mark.parametrize("buckets", [1, 2, 5])
def test_k8_hits_per_bucket_add_up_to_the_same_for_any_number_of_buckets(buckets: int) -> None:
    done = play(hits_per_bucket, hot("a@1=130, b@2=120", buckets), hot("c@3=121", buckets))
    assert sum(state["hits"] for state in done.state.values()) == 2
    assert done.results[-1][2] == sum(1 for row in done.results if row[0] == done.results[-1][0])


def test_k9_a_count_is_split_in_ten_and_loses_nothing() -> None:
    assert even_shares(23, 10) == [3, 3, 3, 2, 2, 2, 2, 2, 2, 2]
    for total in range(40):
        # To five buckets: each takes two of the ten shares.
        shares = even_shares(total, 10)
        assert sum(sum(shares[bucket::5]) for bucket in range(5)) == total
    with pytest.raises(DeclarationError, match="0 is no number of parts"):
        even_shares(3, 0)


def test_k10_counts_per_sensor_and_per_bucket() -> None:
    done = play(hits_by_sensor, hot("a@1=131, b@2=132", 1), hot("a@3=100, a@4=133", 1))
    assert [row[2:] for row in done.results] == [("a", 1, 1), ("b", 1, 2), ("a", 2, 3)]


def test_the_bucket_of_a_row_is_the_same_in_spark(spark: SparkSession) -> None:
    ((computed,),) = spark.sql(
        f"select collect_list({bucket_of('id', 4)}) from values ('a'), ('b'), ('é') as t(id)"
    ).collect()
    assert computed == [zlib.crc32(text.encode()) % 4 for text in ("a", "b", "é")]
    with pytest.raises(DeclarationError, match="0 is no number of buckets"):
        bucket_of("id", 0)


def is_small(row: Any) -> bool:
    return bool(row.temperature < 1)


def is_large(row: Any) -> bool:
    return bool(row.temperature > 500)


def test_k20_a_pattern_of_two_rows_within_a_minute_inclusive() -> None:
    fraud = followed_by(
        "fraud",
        readings,
        first=is_small,
        then=is_large,
        within="60 seconds",
        by=("id",),
        columns=("temperature",),
    )
    drawn = "c@0=0.5, c@60=600 | c@100=1, c@110=600, c@200=.99, c@210=500, c@300=.5, c@360.001=600"
    done = played(fraud, drawn, end_of_input=True)
    assert done.results == [("c", at(60), at(0), at(60), 0.5, 600.0)]
    assert done.state == {}


def test_k14_the_newest_heat_is_used_up_by_the_first_smoke() -> None:
    alarms = followed_by("alarms", readings, first=is_small, then=is_large, within="10 minutes", by=("id",))
    drawn = "p@0:50=0, p@0:55=0, p@0:56=501, p@0:57=501"
    assert [row[2:] for row in played(alarms, drawn, end_of_input=True).results] == [(at(3300), at(3360))]


def test_what_is_not_followed_in_time_is_told_once_the_clock_has_passed_it() -> None:
    unpaid = not_followed_by(
        "unpaid", readings, first=is_small, then=is_large, within="10 seconds", by=("id",), columns=("temperature",)
    )
    done = played(unpaid, "a@0=0.25, a@4=0.5, a@10=501 | a@20=0.75, a@21=0.5 | b@30=9, a@30.5=501", end_of_input=True)
    assert [row[2:] for row in done.results] == [(at(20), 0.75)]
    assert done.state == {}
    assert str(done.results[0][1]) == str(at(30.000001))


def test_a_key_that_falls_silent_is_told_once_and_watched_again_when_it_is_back() -> None:
    silent = absence("silent", readings, ("id",), after="10 seconds")
    done = played(silent, "a@0, b@1, a@9.999 | b@5, b@40, a@45", end_of_input=True)
    silences = [("a", at(19.999), at(9.999)), ("a", at(55), at(45)), ("b", at(11), at(1)), ("b", at(50), at(40))]
    assert sorted(done.results) == silences
    assert len(done.late) == 1 and done.state == {}


def test_duplicates_are_told_apart_whatever_batch_they_come_in_and_forgotten_behind_the_horizon() -> None:
    first = deduplicated("first", readings, ("id",), horizon="1 hour")
    done = played(first, "a@0:10=1, a@0:20=2 | b@1:09:59=3, a@1:09:59.999=4, a@0:05=5 | a@1:10=6 | c@5:00=7")
    assert [(row[0], row[3]) for row in done.results] == [("a", 1.0), ("b", 3.0), ("a", 6.0), ("c", 7.0)]
    assert [(row[3], row[5]) for row in done.outputs["duplicates"]] == [(n, at(600)) for n in (2.0, 4.0, 5.0)]
    assert set(done.state) == {("c",)}
    late = played(first, "z@9:00=0 | a@0:10=1, a@0:10=2 | a@0:10=3")
    assert [row[3] for row in late.outputs["duplicates"]] == [2.0, 3.0], "late copies are copies as well"
    kept = played(deduplicated("kept", readings, ("id",)), "a@0=1 | a@24:00=2")
    assert [row[3] for row in kept.outputs["duplicates"]] == [2.0]


def test_a_ranking_tells_the_ranks_that_change_and_an_item_stands_with_its_greatest_value() -> None:
    warmest = top("warmest", readings, n=2, item="id", value="temperature")
    done = played(warmest, "a@1=5, b@2=7 | c@3=6, a@4=6, a@5=8, b@6=1, d@7")
    assert [row[1:] for row in done.results] == [
        (1, "a", 5.0),
        (1, "b", 7.0),
        (2, "a", 5.0),
        (2, "c", 6.0),
        (1, "a", 8.0),
        (2, "b", 7.0),
    ]
    assert done.state == {(): {"ranking": [{"item": "a", "value": 8.0}, {"item": "b", "value": 7.0}]}}


def less_one(value: float) -> float:
    return value - 1


def is_positive(value: float) -> bool:
    return value > 0


def test_e22_a_value_is_fed_back_until_it_is_done_or_has_gone_round_too_often() -> None:
    countdown = iterated(
        "countdown", readings, value="temperature", body=less_one, goes_on=is_positive, by=("id",), rounds=3
    )
    done = played(countdown, "a@1=3, a@2=0, b@3=2, b@4=4")
    assert [row[2:] for row in done.results] == [(3.0, 0.0, 3), (0.0, 0.0, 0), (2.0, 0.0, 2)]
    assert done.outputs["unfinished"] == [("b", at(4), 4.0, 1.0)]
    assert done.state == {}


PIECES = (
    rolling("rolled", readings, {"total": "sum(temperature)", "warmest": "max_by(*, temperature)"}, by=("id",)),
    followed_by("pairs", readings, first=is_small, then=is_large, within="3 seconds", by=("id",)),
    not_followed_by("missed", readings, first=is_small, then=is_large, within="3 seconds", by=("id",)),
    absence("silent", readings, ("id",), after="2 seconds"),
    deduplicated("first", readings, ("id",), horizon="4 seconds"),
    top("warmest", readings, n=2, item="id", value="temperature"),
)


@pytest.mark.parametrize("piece", PIECES, ids=lambda piece: str(piece.name))
def test_results_of_a_piece_do_not_depend_on_where_steps_end(piece: Keyed) -> None:
    piece = replace(piece, of=replace(readings, clock=BoundedOutOfOrderness("1 second")))
    chance = random.Random(7)
    times = (second + chance.choice((0, 0.25, 2, 3)) for second in range(60))
    drawn = [f"{chance.choice('abc')}@{time}={chance.choice((0.5, 3, 501, 600))}" for time in times]
    batches = [rows(", ".join(drawn[start : start + 4])) for start in range(0, 60, 4)]
    whole = play(piece, *batches, steps=(), end_of_input=True)
    assert all(whole.outputs.values())
    for steps in ((0, 3, 9), range(15), (1, 2, 12, 13)):
        cut = play(piece, *batches, steps=steps, end_of_input=True)
        assert {to: sorted(results, key=repr) for to, results in cut.outputs.items()} == {
            to: sorted(results, key=repr) for to, results in whole.outputs.items()
        }
        assert cut.state == whole.state


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (lambda: rolling("r", readings, {"x": "median(temperature)"}), r"'median\(temperature\)', which does not roll"),
        (lambda: rolling("r", readings, {"x": "sum(heat)"}), r"'heat', which is no column .* id, timestamp, temp"),
        (lambda: rolling("r", readings, {"x": "sum(id)"}), "type string; sum one of numbers"),
        (lambda: top("t", readings, n=0, item="id", value="temperature"), "n=0 of top 't'"),
        (lambda: absence("s", readings, ("id",), after="soon"), "'soon' is not an interval"),
        (
            lambda: iterated("i", readings, value="id", body=less_one, goes_on=is_small, by=(), rounds=0),
            "rounds=0 of iteration 'i'",
        ),
        (
            lambda: followed_by("p", readings, first=lambda row: True, then=is_small, within="1 hour"),
            "first= of pattern 'p' .* cannot find by its name",
        ),
    ],
)
def test_a_piece_that_cannot_be_is_refused(made: Any, reason: str) -> None:
    with pytest.raises(DeclarationError, match=reason):
        made()
