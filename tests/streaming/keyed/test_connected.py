"""Keyed functions of two streams, and with rules, played without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from streaming import Json
from streaming.base.errors import DeclarationError, FunctionError
from streaming.declare.condition_rule import ConditionRule
from streaming.declare.keyed import Keyed
from streaming.declare.pinned import Pinned
from streaming.keyed.fold import Key
from tests.streaming.keyed.connected import (
    commands,
    drawn,
    forest,
    forest_fires,
    jumps_by_rule,
    jumps_since_reset,
    matched,
    met,
    numbers,
    orders,
    payments,
    recommended,
    scored,
    settled,
    smoke,
    thresholds,
    words,
)
from tests.streaming.keyed.functions import counts, readings, rows
from tests.support.instants import at
from tidemark.testing import Played, play

FOREST = {"place": "forest"}


def read(text: str) -> list[dict[str, Any]]:
    """Readings of the forest."""
    return [{**row, **FOREST} for row in rows(text)]


def values(done: Played, to: str = "") -> list[tuple[Any, ...]]:
    """The rows of an output without key and time."""
    return [row[2:] for row in done.outputs[to]]


# Connected streams


@pytest.mark.parametrize(
    "batches",
    [
        [
            {
                "readings": read("a@1=101, a@3=101, a@4=100, a@6=150"),
                "smoke": drawn("level=HIGH @2, level=LOW @5", **FOREST),
            }
        ],
        [
            {"readings": read("a@1=101, a@3=101")},
            {"readings": read("a@4=100, a@6=150")},
            {"smoke": drawn("level=HIGH @2", **FOREST)},
            {"smoke": drawn("level=LOW @5", **FOREST)},
        ],
    ],
    ids=["together", "one after the other"],
)
def test_j6_forest_fire_needs_high_smoke_and_more_than_100(batches: list[Mapping[str, Any]]) -> None:
    done = play(forest_fires, *batches, end_of_input=True)
    assert done.results == [("forest", at(3), "a", 101.0)]


def test_j7_rows_of_equal_keys_meet_whichever_stream_they_are_of() -> None:
    batch = {"numbers": drawn("id=1 number=10 @1, id=2 number=20 @3"), "words": drawn("id=1 word=x @2")}
    done = play(met, batch, end_of_input=True)
    assert done.state == {(1,): {"seen": ["10", "x"]}, (2,): {"seen": ["20"]}}
    assert [row[2] for row in done.results if row[0] == 1] == ["numbers", "words"]


def test_j7_rows_of_one_time_come_in_the_order_in_which_the_streams_are_declared() -> None:
    batch = {"words": drawn("id=1 word=x @1"), "numbers": drawn("id=1 number=10 @1")}
    assert play(met, batch, end_of_input=True).state == {(1,): {"seen": ["10", "x"]}}
    turned = replace(met, of=(words, numbers))
    assert play(turned, batch, end_of_input=True).state == {(1,): {"seen": ["x", "10"]}}


def test_j7_without_a_common_key_the_declaration_is_refused() -> None:
    with pytest.raises(DeclarationError, match=r"'numbers', 'words' by no key.*columns that all of them have.*: id"):
        replace(met, by=())
    with pytest.raises(DeclarationError, match=r"'numbers', 'words' by 'number', so which of their rows"):
        replace(met, by=("number",))
    text = replace(words, format=Json("id string not null, word string, at timestamp not null"))
    with pytest.raises(DeclarationError, match=r"of the same type: at\."):
        replace(met, of=(numbers, text))


def test_two_streams_come_in_no_order_of_arrival() -> None:
    with pytest.raises(DeclarationError, match=r"how rows of several logs came after one another follows from none"):
        replace(met, order="arrival")


def test_a_silent_stream_holds_up_the_other_until_its_clock_moves() -> None:
    waiting = [{"numbers": drawn("id=1 number=10 @1, id=1 number=20 @9")}, {"words": drawn("id=2 word=x @1")}]
    assert play(met, *waiting).results == []
    assert values(play(met, *waiting, {"words": drawn("id=2 word=y @5")})) == [
        *[("numbers", ["10"]), ("words", ["x"])],
    ]


def test_a_row_is_late_by_the_clock_of_its_own_stream() -> None:
    first = {"numbers": drawn("id=1 number=10 @9"), "words": drawn("id=1 word=x @1")}
    second = {"numbers": drawn("id=1 number=20 @8"), "words": drawn("id=1 word=y @8")}
    done = play(met, first, second, end_of_input=True)
    assert [row["number"] for row in done.late] == [20]
    assert done.state == {(1,): {"seen": ["x", "y", "10"]}}


def test_j10_a_join_of_ones_own_leaves_no_state_once_the_clock_has_passed_all_bounds() -> None:
    bought = drawn("id=a amount=1.5 @0, id=b amount=2.5 @0, id=c amount=3.5 @0, id=z amount=0 @2000")
    paid = drawn("id=a paid=1.5 @899.999, id=b paid=2.5 @900, id=c paid=3.5 @900.001, id=z paid=0 @2000")
    batch = {"orders": bought, "payments": paid}
    done = play(settled, batch, {"orders": [], "payments": []})
    assert {row[0] for row in done.results} == {"a", "b"}
    assert done.outputs["unpaid"] == [("c", at(900.000001), 3.5)]
    assert done.state == {} and done.timers == {}


# Rules


def told(text: str) -> list[dict[str, Any]]:
    return drawn(text)


R1 = (
    {
        "thresholds": told(
            "id=s1 threshold=5.0 number=1, id=s2 threshold=0.9 number=2, id=s3 threshold=0.5 number=3, "
            "id=s1 threshold=1.2 number=4, id=s3 threshold=0.0 number=5"
        ),
        "readings": rows("s1@1=20, s1@2=21.25, s2@3=20, s2@4=20.75, s3@5=20, s3@6=30"),
    },
    {"thresholds": told("id=s3 threshold=4.0 number=6"), "readings": rows("s3@7=33, s3@8=38")},
)


def test_r1_thresholds_are_set_changed_and_removed_at_run_time() -> None:
    done = play(jumps_by_rule, *R1)
    assert done.results == [("s1", at(2), 21.25, 1.25, 4), ("s3", at(8), 38.0, 5.0, 6)]


def test_r1_the_newest_number_wins_whichever_comes_first() -> None:
    batch = {"thresholds": told("id=s number=2 threshold=1.0, id=s number=1 threshold=9.0"), "readings": rows("s@1=1")}
    later = {"thresholds": told("id=s number=0 threshold=9.0"), "readings": rows("s@2=3")}
    assert values(play(jumps_by_rule, batch, later)) == [(3.0, 2.0, 2)]


@pytest.mark.parametrize("order", ["arrival", "event"])
def test_rules_apply_to_the_batches_that_come_with_or_after_them_however_late_these_are_followed(order: Any) -> None:
    batches = [
        {"readings": rows("s@1=1")},
        {"thresholds": told("id=s threshold=1 number=1"), "readings": rows("s@2=3")},
        {"thresholds": told("id=s threshold=9 number=2")},
        {"readings": rows("s@3=9")},
    ]
    keyed = replace(jumps_by_rule, order=order)
    for steps in ([0, 1, 2, 3], [3], [1, 3]):
        assert values(play(keyed, *batches, steps=steps, end_of_input=True)) == [(3.0, 2.0, 1)]


def test_r4_one_command_resets_every_key_without_touching_it() -> None:
    done = play(
        jumps_since_reset,
        {"readings": rows("a@1=20, b@1=20")},
        {"commands": told("command=reset number=1"), "readings": rows("a@2=90, a@3=95")},
        {"readings": rows("b@4=90, b@5=91")},
    )
    assert done.results == [("a", at(3), 95.0, 90.0)]
    assert done.state[("a",)] == {"previous": 95.0, "reset": 1}


def test_r3_a_model_is_replaced_while_rows_come_and_each_output_names_the_one_that_made_it() -> None:
    done = play(
        scored,
        {"readings": rows("a@1=1")},
        {"models": told("model=heat slope=2.0 version=1"), "readings": rows("a@2=2")},
        {"readings": rows("a@3=3")},
        {"models": told("model=heat slope=10.0 version=2"), "readings": rows("a@4=4")},
    )
    assert values(done) == [(4.0, 1), (6.0, 1), (40.0, 2)]


def test_k22_a_score_is_of_the_version_that_was_in_force_when_its_batch_was_read() -> None:
    batches = [
        {"models": told("model=heat slope=2.0 version=1"), "readings": rows("a@1=1, b@9=1")},
        {"models": told("model=heat slope=3.0 version=2")},
    ]
    # In order `event` both rows are handled long after version 2 has come.
    done = play(replace(scored, order="event"), *batches, steps=[], end_of_input=True)
    assert values(done) == [(2.0, 1), (2.0, 1)]


def test_k21_recommendations_while_browsing() -> None:
    def co(product: str, version: int, **others: int) -> dict[str, Any]:
        return {"product": product, "others": others, "version": version, "at": at(0)}

    def seen(*products: str) -> list[dict[str, Any]]:
        return [{"user": "u", "product": product, "at": at(1)} for product in products]

    batches = [
        {"co_views": [co("tv", 1, cable=5, stand=3, remote=4, cloth=1)], "views": seen("tv")},
        {"co_views": [co("cable", 1, plug=9)], "views": seen("cable")},
        {"co_views": [co("tv", 2, stand=7)], "views": seen(*(f"p{number}" for number in range(19)))},
    ]
    whole, cut = play(recommended, *batches, steps=[]), play(recommended, *batches)
    tops = [top for (top,) in values(whole)]
    assert tops[:3] == [["cable", "remote", "stand"], ["plug", "remote", "stand"], ["plug", "stand"]]
    # The television is the 21st last product that was viewed.
    assert tops[-1] == ["plug"]
    assert whole.state == cut.state and whole.results == cut.results
    assert whole.state[("u",)]["viewed"] == ["cable", *(f"p{number}" for number in range(19))]


def name_all(key: Key, row: Any) -> None:
    key.emit(rules=[rule.id for rule in key.rules.values()])


def test_rules_are_told_in_the_order_of_their_keys_whichever_came_first() -> None:
    keyed = Keyed("named", readings, ("id",), "", "rules array<string>", name_all, rules=jumps_by_rule.rules)
    batches = [{"thresholds": told(f"id={name} threshold=1 number=1"), "readings": []} for name in "cab"]
    assert values(play(keyed, *batches, {"readings": rows("s@1=1")})) == [(["a", "b", "c"],)]


def look_up(key: Key, row: Any) -> None:
    key.emit(rules=len(key.rules), rule=key.rules.get(row.id))


def test_a_rule_is_looked_up_by_a_tuple_and_anything_else_says_how() -> None:
    keyed = Keyed("looked_up", readings, ("id",), "", "rules int, rule string", look_up, rules=jumps_by_rule.rules)
    with pytest.raises(FunctionError, match=r"key\.rules\.get\(\(row\.id,\)\)"):
        play(keyed, {"thresholds": told("id=s threshold=1 number=1"), "readings": rows("s@1=1")})


def test_a_batch_of_an_unknown_stream_is_refused() -> None:
    with pytest.raises(DeclarationError, match=r"a batch is of 'smoke', but keyed function 'met' reads numbers, words"):
        play(met, {"smoke": []})


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (lambda: Pinned(thresholds, by=("nothing",)), r"unknown column 'nothing'"),
        (lambda: Pinned(thresholds, version="nothing"), r"version='nothing' is no column of control stream"),
        (lambda: replace(counts, rules=Pinned(readings)), r"is the stream it reads"),
        (lambda: replace(met, rules=Pinned(commands)), r"reads 2 streams; let one function have the rules"),
        (lambda: replace(matched, of=readings), r"conditions of its rules are: condition about readings\. Give"),
        (
            lambda: ConditionRule("readable", "condition", cast(Any, "readings")),
            r"write the stream that its conditions are about",
        ),
        (lambda: play(matched), r"are SQL conditions, which only Spark can ask"),
        (lambda: replace(met, of=(numbers, numbers)), r"reads stream 'numbers' twice"),
        (lambda: replace(met, of=()), r"is empty; write the stream that it reads"),
        (lambda: replace(forest_fires, state="rules string"), r"name that is taken"),
    ],
)
def test_what_cannot_be_declared(declared: Any, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        declared()


def test_streams_of_a_function_are_all_that_it_reads_and_rules_are_pinned() -> None:
    assert settled.reads == (orders, payments) and settled.pins == ()
    assert jumps_by_rule.reads == (readings, thresholds) and jumps_by_rule.pins == (thresholds,)
    assert {column.of for column in forest_fires.columns_of() if column.name == "temperature"} == {
        tuple((each.name, name) for each in (smoke, forest) for name in each.columns)
    }
