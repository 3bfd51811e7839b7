"""What a user's function raised is told with the line that raised it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from streaming.base import raised

MESSAGE = "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"


def refuse() -> None:
    raise ValueError("no tariff\n  for today")


def parse() -> None:
    json.loads("{")


def be_silent() -> None:
    raise KeyError


def told_of(function: Callable[[], None]) -> str:
    try:
        function()
    except Exception as error:
        return raised(error)
    raise AssertionError("it did not raise")


@pytest.mark.parametrize(
    ("function", "text", "line"),
    [
        (refuse, "ValueError: no tariff | for today", r'raise ValueError("no tariff\n  for today")'),
        (parse, f"JSONDecodeError: {MESSAGE}", 'json.loads("{")'),
        (be_silent, "KeyError", "raise KeyError"),
    ],
)
def test_the_error_is_one_line_with_the_last_line_that_is_no_librarys(
    function: Callable[[], None], text: str, line: str
) -> None:
    number = function.__code__.co_firstlineno + 1
    assert told_of(function) == f"{text} ({__file__}, line {number}, in {function.__name__}: {line})"


def test_an_error_of_whoever_calls_has_no_place() -> None:
    try:
        raise ValueError("here")
    except ValueError as error:
        assert raised(error) == "ValueError: here"
    assert raised(ValueError("never raised")) == "ValueError: never raised"


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise KeyError("no text")


def test_an_error_that_has_no_text_is_told_by_its_class() -> None:
    assert raised(Unspeakable()) == "Unspeakable"


def test_an_error_within_a_library_is_told_with_its_last_line_where_there_is_no_other() -> None:
    try:
        json.loads("{")
    except ValueError as error:
        assert "json/decoder.py" in raised(error)
