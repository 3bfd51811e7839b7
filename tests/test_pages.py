"""Pages that say "shown by" name tests: those are there, and each of them asserts something.

Whether they show it, only reading them tells; whether it holds, running them does.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import version
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PROJECT = TESTS.parent
FACTS = "streaming/spark/FACTS.md"
THREATS = "| threat | what holds | shown by |\n|---|---|---|\n"
_NAMED = re.compile(r"`(?:(tests/[^`:]+\.py)::)?(test_\w+)`")
_ASSERTS = re.compile(r"\bassert\b|\b(raises|warns|fail|law|until|check\w*)\(")
"""A statement or a call that fails where something is not as it must be."""


def text_of(page: str) -> str:
    return (PROJECT / page).read_text(encoding="utf-8")


@cache
def by_name() -> dict[str, dict[str, str]]:
    """By name the text of each function that is a test, by its file."""
    tests: dict[str, dict[str, str]] = {}
    for file in TESTS.rglob("*.py"):
        for _, name, body in re.findall(
            r"^( *)def (test_\w+)(.*?)(?=^\1(?! |\))\S|\Z)", file.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
        ):
            tests.setdefault(name, {})[file.relative_to(PROJECT).as_posix()] = body
    return tests


@pytest.mark.parametrize("page", ["README.md", "GUIDE.md", "streaming/README.md", FACTS])
def test_every_test_that_a_page_names_is_there_and_asserts_something(page: str) -> None:
    modules = {file.stem for file in TESTS.rglob("test_*.py")}
    missing, silent = [], []
    for file, name in set(_NAMED.findall(text_of(page))):
        there = by_name().get(name, {})
        if not (file in there if file else there or name in modules):
            missing.append(f"{file}::{name}")
        silent += [name for each, body in there.items() if file in ("", each) and not _ASSERTS.search(body)]
    assert (missing, silent) == ([], [])


def test_every_threat_and_every_fact_but_costs_names_a_test() -> None:
    threats = text_of("GUIDE.md").partition(THREATS)[2].partition("\n\n")[0].splitlines()
    facts = [each for each in text_of(FACTS).partition("## Costs")[0].split("\n\n") if each.startswith("**")]
    assert len(threats) > 10 and len(facts) > 20
    assert [each for each in (*threats, *facts) if not _NAMED.search(each)] == []


def test_the_facts_are_those_of_the_versions_that_are_installed() -> None:
    """After an upgrade they have to be read again, and their versions written anew."""
    said = re.search(r"Spark (\S+), Delta (\S+) and delta-rs (\S+) behave", text_of(FACTS))
    assert said is not None
    assert said.groups() == tuple(version(name) for name in ("pyspark", "delta-spark", "deltalake"))
