"""A declaration is a value like a number or a text: it can be compared, hashed, pickled and copied."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from streaming.base.frozen_mapping import FrozenMapping
from streaming.declare.pipeline import Pipeline
from streaming.declare.stream import Stream
from streaming.declare.windowed import Windowed
from tests.support.declarations import every_declaration

DECLARATIONS = every_declaration()


def test_the_examples_declare_streams_views_and_pipelines() -> None:
    counts = [sum(isinstance(value, kind) for value in DECLARATIONS) for kind in (Stream, Windowed, Pipeline)]
    assert min(counts) > 10


def test_every_declaration_is_equal_to_its_copies_and_finds_what_was_kept_under_it() -> None:
    assert [value for value in DECLARATIONS if not is_a_value(value)] == []


def is_a_value(value: Any) -> bool:
    copies = (pickle.loads(pickle.dumps(value)), copy.deepcopy(value), copy.copy(value))
    return all(other == value and {value: "kept"}.get(other) == "kept" for other in copies)


def test_a_thing_that_is_equal_to_itself_alone_is_no_value() -> None:
    assert not is_a_value(Itself())


class Itself:
    """Its copies are others."""


def test_different_declarations_differ() -> None:
    assert len(set(DECLARATIONS)) == len(DECLARATIONS)


def test_a_frozen_mapping_keeps_the_order_and_equals_any_mapping_of_its_entries() -> None:
    entries = {"b": 1, "a": 2}
    mapping = FrozenMapping(entries)
    entries["c"] = 3
    assert list(mapping.items()) == [("b", 1), ("a", 2)]
    assert mapping == {"a": 2, "b": 1} == mapping
    assert mapping != {"a": 2}
    assert hash(mapping) == hash(FrozenMapping({"a": 2, "b": 1}))
    assert repr(mapping) == "FrozenMapping({'b': 1, 'a': 2})"
    with pytest.raises(TypeError, match="does not support item assignment"):
        mapping["b"] = 2  # type: ignore[index]
