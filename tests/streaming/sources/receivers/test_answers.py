"""Answers of HTTP APIs as rows, as they were written, and the place behind them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.base.errors import ReceiverError
from streaming.sources.receivers.http import AnswerForm, Place, elements, members

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(VALUES.filter(lambda value: isinstance(value, list)), st.sampled_from([None, 2]))
def test_elements_are_those_of_the_parsed_array(value: list[Any], indent: int | None) -> None:
    assert [json.loads(text) for text in elements(f" {json.dumps(value, indent=indent)} ")] == value


@given(VALUES.filter(lambda value: isinstance(value, dict)), st.sampled_from([None, 2]))
def test_members_are_those_of_the_parsed_object(value: dict[str, Any], indent: int | None) -> None:
    parsed = {name: json.loads(text) for name, text in members(json.dumps(value, indent=indent)).items()}
    assert parsed == value


def read(body: str, form: AnswerForm, before: Place | None = None, **headers: str) -> tuple[list[bytes], Place]:
    return form.read("http://x", body.encode(), headers, before or Place())


@pytest.mark.parametrize(
    ("body", "rows"),
    [
        ('[{"a": 1.10}, {"b":2}]', [b'{"a": 1.10}', b'{"b":2}']),
        ("[]", []),
        ('{"a":\n 1}\n', [b'{"a":  1}']),
        ('{"a": 1}\n{"a": 2}\r\n\n', [b'{"a": 1}', b'{"a": 2}']),
        ("", []),
        # JSON may have these within a text, where Python ends a line.
        ('{"a": "\u2028"}\n{"a": "\x85"}', ['{"a": "\u2028"}'.encode(), '{"a": "\x85"}'.encode()]),
    ],
)
def test_a_row_is_an_element_of_an_array_or_an_object_or_a_line(body: str, rows: list[bytes]) -> None:
    assert read(body, AnswerForm())[0] == rows


def test_the_cursor_is_a_field_of_the_answer_or_of_its_last_row() -> None:
    rows, place = read('{"items": [{"id": 7}], "next": "n7"}', AnswerForm("items", cursor_in="next"))
    assert (rows, place) == ([b'{"id": 7}'], Place("n7"))
    assert read('[{"id": 6}, {"id": 7}]', AnswerForm(cursor_of_row="id"))[1] == Place(7)


def test_an_answer_that_came_before_brings_nothing_and_an_etag_is_kept() -> None:
    rows, place = read("[1, 2]", AnswerForm(), ETag="v1")
    assert (rows, place.etag, place.cursor) == ([b"1", b"2"], "v1", None)
    assert read("[1, 2]", AnswerForm(), place) == ([], place)
    assert read("[1, 2, 3]", AnswerForm(), place)[0] == [b"1", b"2", b"3"]
    assert Place.of(place.as_json(), start=5) == place
    assert Place.of(None, start=5) == Place(5)


@pytest.mark.parametrize(
    ("body", "form"),
    [
        ('{"rows": []}', AnswerForm("items")),
        ("<html>", AnswerForm("items")),
        ('[{"id": 1}]', AnswerForm(cursor_in="next")),
        ('[{"ID": 1}]', AnswerForm(cursor_of_row="id")),
    ],
)
def test_an_answer_of_another_form_is_told_with_its_beginning(body: str, form: AnswerForm) -> None:
    with pytest.raises(ReceiverError, match=r"http://x does not answer as declared .* The answer begins with b'"):
        read(body, form)


@pytest.mark.parametrize("cursor", ["null", "5"])
def test_rows_whose_cursor_is_not_behind_them_are_refused_as_they_would_come_for_ever(cursor: str) -> None:
    form = AnswerForm("items", cursor_in="next")
    with pytest.raises(ReceiverError, match="they would come again and again"):
        read(f'{{"items": [1], "next": {cursor}}}', form, Place(5))
    assert read(f'{{"items": [], "next": {cursor}}}', form, Place(5))[0] == []
