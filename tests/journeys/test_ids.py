"""The page of applications and the golden tests, which begin with the id of one, know each other: `pytest -k t9_`."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = (TESTS / "APPLICATIONS.md").read_text(encoding="utf-8")
_ENTRY = re.compile(r"^- \*\*([A-Z])(\d+)\*\*: (.*?)(?=^- \*\*|^## |\Z)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[`(test_\w+)`\]\(([^)]+)\)")
_NAMED = re.compile(r"^def (test_((?:[a-z]\d+_)+)\w*)", re.MULTILINE)
"""A test of one application or, on Spark, of several."""

ENTRIES = {group + number: text for group, number, text in _ENTRY.findall(PAGE)}


def golden_tests() -> dict[str, set[tuple[str, str]]]:
    """By id, the names of its tests, each with its file."""
    tests = defaultdict(set)
    for file in TESTS.rglob("test_*.py"):
        for name, ids in _NAMED.findall(file.read_text(encoding="utf-8")):
            for each in ids.upper().strip("_").split("_"):
                tests[each].add((name, file.relative_to(TESTS).as_posix()))
    return dict(tests)


def test_every_application_links_exactly_the_tests_that_are_named_after_it() -> None:
    assert {each: set(_LINK.findall(text)) for each, text in ENTRIES.items()} == golden_tests()


def test_no_number_of_a_group_of_applications_is_left_out_and_each_says_what_must_come() -> None:
    numbers = defaultdict(list)
    for each in ENTRIES:
        numbers[each[0]].append(int(each[1:]))
    assert len(ENTRIES) == len(_ENTRY.findall(PAGE)) == 172
    assert all(found == list(range(1, len(found) + 1)) for found in numbers.values())
    assert all(len(_LINK.sub("", text).split()) >= 8 for text in ENTRIES.values())


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_ids_on_a_page_are_those_of_applications(name: str) -> None:
    page = (TESTS.parent / name).read_text(encoding="utf-8")
    assert set(map(str.upper, re.findall(r"`-k ([a-z]\d+)_`", page))) <= set(ENTRIES)
    assert "](tests/APPLICATIONS.md)" in page


def test_ids_in_the_comparison_are_those_of_applications() -> None:
    page = (TESTS.parent / "docs" / "comparison.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\|.*\| ([^|`]+) \|$", page, re.MULTILINE)
    ids = {each for cell in cells for each in re.findall(r"[A-Z]\d+", cell)}
    assert len(ids) > 20 and ids <= set(ENTRIES)
