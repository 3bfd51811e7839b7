"""The facts in which two declarations differ, in words."""

from __future__ import annotations

from typing import Any

import pytest

from streaming.tables import FactChange, changed_facts

WORDS: dict[str, tuple[Any, Any, str]] = {
    "window of another length": (
        "Tumbling(size=1:00:00, offset=0:00:00)",
        "Tumbling(size=0:30:00, offset=0:00:00)",
        "fact Tumbling: size 1 hour → 30 minutes",
    ),
    "window of another kind": (
        "Tumbling(size=1:00:00)",
        "Sliding(size=1 day, 0:00:00)",
        "fact Tumbling(size=1:00:00) → Sliding(size=1 day, 0:00:00)",
    ),
    "several values": (
        "Clock(delay=5 seconds, max_ahead=1 day)",
        "Clock(delay=6 seconds)",
        "fact Clock: delay 5 seconds → 6 seconds, max_ahead 1 day → nothing",
    ),
    "length": ("1:00:00", "2 days, 0:00:01.500000", "fact 1 hour → 2 days 1.5 seconds"),
    "something instead of nothing": (None, "amount > 0", "fact added: amount > 0"),
    "nothing instead of something": (["id"], [], "fact removed, which was id"),
    "entries of a list": (["where a", "all"], ["where b", "all"], "fact: - where a, + where b"),
    "the order of a list": (["a", "b"], ["b", "a"], "fact a, b → b, a"),
    "lines of SQL": (
        "select a\nfrom t\nwhere a > 1",
        "select a, b\nfrom t\nwhere a > 1",
        "fact differs:\n  - select a\n  + select a, b",
    ),
    "one line of SQL": ("sum(v)", "max(v)", "fact sum(v) → max(v)"),
}


@pytest.mark.parametrize("case", WORDS)
def test_a_change_is_told_in_words(case: str) -> None:
    before, after, words = WORDS[case]
    assert FactChange("fact", None, before, after).words == words


def test_entries_of_a_fact_are_told_each_by_its_name() -> None:
    before = {"aggregate": {"n": "count(1)", "gone": "sum(v)"}, "where": None}
    after = {"aggregate": {"n": "count(1)", "new": "max(v)"}, "where": "v > 1"}
    assert [change.words for change in changed_facts(before, after)] == [
        "aggregate 'gone' removed, which was sum(v)",
        "aggregate 'new' added: max(v)",
        "where added: v > 1",
    ]
