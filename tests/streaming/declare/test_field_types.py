"""A declaration takes no value of another type than its field has, and says which field, what, and what to write."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any, get_type_hints

import pytest

from docs.examples.city_temperatures import pipeline as received
from streaming import (
    CoGrouped,
    Delivery,
    Enriched,
    Joined,
    JsonLines,
    Keyed,
    Pinned,
    Rule,
    Selected,
    Subscriptions,
    Tumbling,
    WindowJoined,
    agg,
)
from streaming.base.errors import DeclarationError, TidemarkError, UnknownChoice, WrongType
from tests.streaming.declare.test_declarations import STREAM, VIEW
from tests.support.errors import refused

OTHER = replace(STREAM, name="returns", rules=(), derived={})


def told(key: Any, row: Any) -> None:
    """A function that a declaration may have."""


def asked(row: Any, request: Any) -> dict[str, Any]:
    return {}


def met(left: Any, right: Any) -> Any:
    return left


DECLARED: tuple[Any, ...] = (
    STREAM,
    VIEW,
    Rule("present", "id is not null"),
    agg.mean("amount"),
    Keyed("told", STREAM, ("id",), "n bigint", "n bigint", told),
    Selected("some", STREAM),
    Joined("joined", STREAM, OTHER, on=("id",), between=("0 seconds", "1 hour")),
    WindowJoined("met", STREAM, OTHER, on=("id",), window=Tumbling("1 hour")),
    CoGrouped("grouped", STREAM, OTHER, on=("id",), window=Tumbling("1 hour"), result="n bigint", function=met),  # type: ignore[arg-type]
    Enriched("asked", STREAM, asked, {"room": "string"}),
    Delivery("out", VIEW, JsonLines("out")),
    Pinned(OTHER, by=("id",)),
    received.receivers[0],
    Subscriptions(STREAM, "id"),
)


def typed_fields() -> Iterator[Any]:
    """Each field of each declaration, but for functions, which are asked whether they can be called."""
    for declared in DECLARED:
        hints = get_type_hints(type(declared))
        for field in fields(declared):
            if field.init and "Callable" not in str(hints[field.name]):
                yield pytest.param(declared, field.name, id=f"{type(declared).__name__}.{field.name}")


@pytest.mark.parametrize(("declared", "field"), [*typed_fields()])
def test_a_value_of_another_type_is_refused_by_the_name_of_its_field(declared: Any, field: str) -> None:
    other = object()
    with refused(DeclarationError, field=field, value=other):
        replace(declared, **{field: other})


@pytest.mark.parametrize(
    ("declared", "field", "value", "wrong", "advice"),
    [
        (STREAM, "derived", {"x": 1}, 1, "write text."),
        (STREAM, "derived", {1: "x"}, 1, "write text."),
        (STREAM, "keep_raw", 1, 1, "write True or False."),
        (STREAM, "rules", ("id = 'a'",), "id = 'a'", "write rules, such as Rule('id_present', 'id is not null')."),
        (VIEW, "by", "id", "id", "write a tuple of text, such as ('id',)."),
        (VIEW, "aggregates", {"m": "avg(x)"}, "avg(x)", "write an aggregate, such as agg.mean('amount')."),
        (VIEW, "of", "orders", "orders", "write the stream itself."),
        (DECLARED[4], "version", True, True, "write a whole number."),
        (DECLARED[10], "of", 1, 1, "write the stream itself, an operator such as a view, or another delivery."),
        (DECLARED[5], "select", 1, 1, "write a tuple of text, such as ('id',), or a dict from name to text."),
    ],
)
def test_the_advice_says_what_to_write(declared: Any, field: str, value: object, wrong: object, advice: str) -> None:
    with refused(WrongType, field=field, value=wrong, next_step=advice):
        replace(declared, **{field: value})


@pytest.mark.parametrize(
    ("declared", "field", "choices"),
    [
        (VIEW, "late", ("correct", "update", "drop")),
        (VIEW, "on_error", ("pause", "side")),
        (DECLARED[4], "order", ("arrival", "event")),
        (DECLARED[6], "kind", ("inner", "left", "outer")),
        (DECLARED[9], "on_failure", ("side", "null", "default")),
    ],
)
def test_a_word_that_is_none_of_those_there_are_is_refused_with_them(
    declared: Any, field: str, choices: tuple[str, ...]
) -> None:
    with refused(UnknownChoice, field=field, value="never", choices=choices):
        replace(declared, **{field: "never"})


def test_what_is_refused_is_told_in_one_sentence() -> None:
    with pytest.raises(TidemarkError) as raised:
        replace(VIEW, late="never")  # type: ignore[arg-type]
    told = "late='never' of view 'by_hour' is unknown; use one of: 'correct', 'update', 'drop'."
    assert str(raised.value) == told
