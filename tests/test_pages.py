"""Pages: the tests that they name are there and assert something, links lead somewhere, sentences can be read.

Whether a test shows what a page says, only reading it tells; whether it holds, running it does. `make docs` builds the
pages and checks their links once more, also those into what is made of docstrings.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import version
from pathlib import Path

import pytest

import tidemark
from tests.support import guide

TESTS = Path(__file__).parent
PROJECT = TESTS.parent
FACTS = "streaming/spark/FACTS.md"
PAGES = [f"docs/{page}" for page in guide.pages()]
READ_IN_THE_REPOSITORY = [
    "README.md",
    "GUIDE.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "streaming/README.md",
    "benchmarks/README.md",
    "deploy/README.md",
]
MOST_WORDS = 35
"""In a sentence of the pages; one that is longer says two things."""
THREATS = "| threat | what holds | shown by |\n|---|---|---|\n"
_NAMED = re.compile(r"`(?:(tests/[^`:]+\.py)::)?(test_\w+)`")
_ASSERTS = re.compile(r"\bassert\b|\b(raises|warns|fail|law|until|check\w*)\(")
"""A statement or a call that fails where something is not as it must be."""
_CODE = re.compile(r"^ *```.*?^ *```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


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


def anchors(page: str) -> set[str]:
    """The names under which the headings of a page can be linked to."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text_of(page), flags=re.M | re.S), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def sentences(page: str) -> list[str]:
    """What a page says outside of tables, a word for each piece of code."""
    text = re.sub(r"^ *\|.*$|!?\]\([^)]*\)", "", _CODE.sub("x", text_of(page)), flags=re.MULTILINE)
    pieces = re.split(r"\n\s*\n|\n(?=\s*(?:-|\d+\.) )|\n(?=#)|(?<=[.:;!?])[\s*]+", text)
    return [" ".join(piece.split()) for piece in pieces]


@pytest.mark.parametrize("page", ["README.md", "GUIDE.md", "streaming/README.md", FACTS, *PAGES])
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
    threats = text_of("docs/security.md").partition(THREATS)[2].partition("\n\n")[0].splitlines()
    facts = [each for each in text_of(FACTS).partition("## Costs")[0].split("\n\n") if each.startswith("**")]
    assert len(threats) > 10 and len(facts) > 20
    assert [each for each in (*threats, *facts) if not _NAMED.search(each)] == []


def test_the_facts_are_those_of_the_versions_that_are_installed() -> None:
    """After an upgrade they have to be read again, and their versions written anew."""
    said = re.search(r"Spark (\S+), Delta (\S+) and delta-rs (\S+) behave", text_of(FACTS))
    assert said is not None
    assert said.groups() == tuple(version(name) for name in ("pyspark", "delta-spark", "deltalake"))


def test_every_page_is_in_the_navigation_once_and_every_page_of_the_navigation_is_there() -> None:
    there = sorted(path.relative_to(PROJECT).as_posix() for path in (PROJECT / "docs").rglob("*.md"))
    assert sorted(PAGES) == there


@pytest.mark.parametrize("page", [*READ_IN_THE_REPOSITORY, *PAGES])
def test_every_link_of_a_page_into_the_repository_leads_to_a_file_and_a_heading_of_it(page: str) -> None:
    broken = []
    for link in _LINK.findall(_CODE.sub("", text_of(page))):
        path, _, anchor = link.partition("#")
        if "://" in path:
            continue
        target = ((PROJECT / page).parent / path).resolve() if path else PROJECT / page
        if not target.exists() or (anchor and anchor not in anchors(target.relative_to(PROJECT).as_posix())):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", ["README.md", "GUIDE.md", *PAGES])
def test_no_sentence_of_a_page_is_longer_than_one_can_read(page: str) -> None:
    assert [each for each in sentences(page) if len(each.split()) > MOST_WORDS] == []


def test_the_reference_has_every_name_of_the_facade_once() -> None:
    named = [name for page in PAGES for name in re.findall(r"^::: tidemark\.(\w+)$", text_of(page), re.MULTILINE)]
    assert sorted(named) == sorted((*dir(tidemark), "testing"))


def test_what_the_pages_are_built_with_names_no_host() -> None:
    settings = guide.SITE.read_text(encoding="utf-8")
    assert "://" not in settings and "font: false" in settings
