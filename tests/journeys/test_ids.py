"""Golden tests are found by the id of their application: `pytest -k t9_`. The ids, so that a typo in one is seen."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]

APPLICATIONS = {"E": 22, "W": 25, "L": 10, "T": 10, "K": 22, "R": 6, "J": 11, "D": 8, "S": 17, "X": 17, "A": 6, "O": 18}
"""How many applications each group of the catalogue has: E1 to E22, and so on."""

WITH_A_GOLDEN_TEST = {
    "E": [*range(1, 23)],
    "W": [*range(1, 26)],
    "L": [*range(1, 11)],
    "T": [*range(1, 11)],
    "K": [*range(1, 23)],
    "R": [*range(1, 7)],
    "J": [*range(1, 12)],
    "D": [*range(1, 9)],
    "S": [*range(1, 18)],
    "X": [*range(1, 18)],
    "A": [*range(1, 7)],
    "O": [*range(1, 19)],
}
"""The numbers per group; a new one is entered here."""

GOLDEN = {group + str(number) for group, numbers in WITH_A_GOLDEN_TEST.items() for number in numbers}
NAMES = [name for file in TESTS.rglob("test_*.py") for name in re.findall(r"^def (test_\w+)", file.read_text(), re.M)]


def test_the_ids_with_a_golden_test_are_exactly_those_listed() -> None:
    assert {match[1].upper() for name in NAMES if (match := re.match(r"test_([a-z]\d+)_", name))} == GOLDEN


def test_an_id_within_a_name_has_a_test_of_its_own() -> None:
    named = {mentioned.upper() for name in NAMES for mentioned in re.findall(r"(?<=_)[a-z]\d+(?=_|$)", name)}
    assert named == GOLDEN


def test_every_listed_id_is_in_the_catalogue() -> None:
    assert all(max(numbers) <= APPLICATIONS[group] for group, numbers in WITH_A_GOLDEN_TEST.items())
