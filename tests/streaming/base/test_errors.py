"""An error tells programs its facts: codes are unique and listed, and another process loses nothing of it."""

from __future__ import annotations

import copy
import pickle
from collections import Counter
from datetime import date
from pathlib import Path

import pytest

from quality.errors import GateClosed, Reason
from streaming.base.errors import (
    CorrectionsFailed,
    DeclarationError,
    FormatError,
    SinkError,
    StoreError,
    TidemarkError,
)
from tests.support import errors

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "errors.md"


def test_every_class_of_error_has_a_code_of_its_own() -> None:
    counted = Counter(kind.code for kind in errors.kinds())
    assert len(counted) > 40
    assert [code for code, number in counted.items() if number > 1] == []
    assert [kind for kind in errors.kinds() if "code" not in vars(kind)] == []


def test_the_page_of_codes_lists_every_class_as_it_is() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text[text.index("| code |") :].strip() == errors.page()


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (TidemarkError("there is none", "give one."), "there is none; give one."),
        (TidemarkError("There is none.", "Give one."), "There is none. Give one."),
        (TidemarkError("there is none", "Give one."), "there is none. Give one."),
        (TidemarkError("there is none."), "there is none."),
    ],
)
def test_the_text_is_what_an_error_says_and_the_next_step(error: TidemarkError, text: str) -> None:
    assert str(error) == text


def test_an_error_has_the_facts_that_it_was_given_and_no_others() -> None:
    error = DeclarationError("it is wrong", "write another.", field="late", value=date(2026, 1, 2), choices=("a",))
    assert (error.field, error.value, error.choices, error.column) == ("late", date(2026, 1, 2), ("a",), None)
    assert error.facts == {"field": "late", "value": date(2026, 1, 2), "choices": ("a",)}
    assert error.to_json() == {
        "code": "declaration",
        "text": "it is wrong; write another.",
        "next_step": "write another.",
        "facts": {"field": "late", "value": "2026-01-02", "choices": ["a"]},
    }


@pytest.mark.parametrize(
    "error",
    [
        DeclarationError("it is wrong", "write another.", field="late", value=("a", 1)),
        SinkError("it is away", retry_after=2.5, address="http://there"),
        StoreError("it is away", "start it.", address="s3://there"),
        FormatError("it is new", table="there", value="7", known=2),
        CorrectionsFailed("two", failed={date(2026, 1, 2): ValueError("x")}, corrected={date(2026, 1, 3): 4}),
        GateClosed([Reason("missing", "flights/log", 1, "unique", None, "it has no verdict")], "Judge first."),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_is_the_one_it_was_in_another_process_and_as_a_copy(error: TidemarkError) -> None:
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(other) is type(error)
        assert (str(other), other.next_step, repr(other.facts)) == (str(error), error.next_step, repr(error.facts))
