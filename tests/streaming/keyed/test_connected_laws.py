"""However two logs interleave or are cut, a function of both gives the same; a row sees the rules of its own batch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.streaming.keyed.connected_oracle import Rows, Versions, by_one_clock, ruled, said, with_rules
from tests.support.examples import many
from tests.support.instants import at
from tidemark.testing import play


def batch(rows: Rows) -> list[dict[str, Any]]:
    return [{"id": key, "at": at(when), "n": value} for key, when, value in rows]


BATCH = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 12), st.integers(0, 2)), max_size=4)
LOG = st.lists(BATCH, max_size=4)


@many
@given(left=LOG, right=LOG, turns=st.lists(st.booleans(), max_size=8), steps=st.lists(st.integers(0, 8)))
def test_any_interleaving_of_two_logs_and_any_cut_gives_what_one_reader_of_both_would_say(
    left: list[Rows], right: list[Rows], turns: list[bool], steps: list[int]
) -> None:
    waiting = {"lefts": list(left), "rights": list(right)}
    batches = []
    for turn in [*turns, *[True] * 4, *[False] * 4]:
        name = "lefts" if turn else "rights"
        if waiting[name]:
            batches.append({name: batch(waiting[name].pop(0))})
    done = play(said, *batches, steps=steps)
    lines_by_key: dict[str, list[Any]] = {}
    for key, when, text in done.results:
        lines_by_key.setdefault(key, []).append(((when - at(0)).total_seconds(), text))
    assert lines_by_key == by_one_clock({"lefts": left, "rights": right})


VERSIONS = st.none() | st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9)), max_size=2)


@pytest.mark.sampled
@pytest.mark.parametrize("order", ["arrival", "event"])
@many
@given(batches=st.lists(st.tuples(VERSIONS, BATCH), max_size=6), steps=st.lists(st.integers(0, 5)))
def test_rules_are_those_that_were_pinned_whenever_a_step_ends(
    order: Literal["arrival", "event"], batches: list[tuple[Versions | None, Rows]], steps: list[int]
) -> None:
    drawn = [
        {
            **({} if versions is None else {"controls": [{"id": k, "version": v, "at": at(0)} for k, v in versions]}),
            "lefts": batch(rows),
        }
        for versions, rows in batches
    ]
    done = play(replace(ruled, order=order), *drawn, steps=steps)
    results = [(key, (when - at(0)).total_seconds(), *rest) for key, when, *rest in done.results]
    assert sorted(results) == with_rules(batches, order)
