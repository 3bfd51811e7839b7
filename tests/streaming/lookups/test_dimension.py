"""Lookups in a Delta dimension: pinned, newest, and as of a row's time."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from streaming import DimensionLookup, Enriched
from streaming.base import python_values, to_micros
from streaming.base.errors import DeclarationError, DimensionError
from streaming.lookups.calls import Answer, Calls, Question
from tests.streaming.lookups.test_calls import ended, events
from tests.support.instants import NOW, at


def rooms(path: Path, rows: Sequence[tuple[Any, ...]]) -> str:
    """A new version of a table of rooms, with the time from which, and before which, each was a sensor's."""
    ids, names, since, until = zip(*rows, strict=True)
    times = pa.timestamp("us", "UTC")
    columns = [pa.array(ids), pa.array(names), pa.array(since, times), pa.array(until, times)]
    table = pa.table(columns, names=["sensor", "room", "since", "until"])
    write_deltalake(str(path), table, mode="overwrite")
    return str(path)


def answers(lookup: DimensionLookup, *rows: tuple[str, datetime]) -> list[Answer]:
    enriched = Enriched("rooms", events, lookup, {"room": "string", "version": "bigint"}, select=("id", "at"))
    asked = [Question(n, ("id", "at"), (id_, to_micros(time)), "key") for n, (id_, time) in enumerate(rows)]
    with closing(Calls(enriched, lambda: NOW)) as calls:
        calls.ask(asked)
        return ended(asked)


def test_a_pinned_dimension_stays_and_the_newest_version_is_named(tmp_path: Path) -> None:
    uri = rooms(tmp_path, [("s1", "room_1", None, None)])
    rooms(tmp_path, [("s1", "room_2", None, None), ("s2", "room_3", None, None)])
    newest = DimensionLookup(uri, {"id": "sensor"}, ("room",), version_as="version")
    pinned = DimensionLookup(uri, {"id": "sensor"}, ("room",), version=0, version_as="version")
    asked = (("s1", at(0)), ("s2", at(0)))
    assert [each.values for each in answers(newest, *asked)] == [
        {"room": "room_2", "version": 1},
        {"room": "room_3", "version": 1},
    ]
    assert [each.values for each in answers(pinned, *asked)] == [{"room": "room_1", "version": 0}, None]


def test_the_newest_version_is_looked_for_again_once_it_is_not_fresh(tmp_path: Path) -> None:
    uri = rooms(tmp_path, [("s1", "room_1", None, None)])
    lookup = DimensionLookup(uri, {"id": "sensor"}, ("room",), fresh_for="0 seconds", version_as="version")
    enriched = Enriched("rooms", events, lookup, {"room": "string", "version": "bigint"}, select=("id", "at"))
    answer_values = []
    with closing(Calls(enriched, lambda: NOW)) as calls:
        for room in ("room_1", "room_2"):
            rooms(tmp_path, [("s1", room, None, None)])
            asked = [Question(0, ("id", "at"), ("s1", 0), "key")]
            calls.ask(asked)
            answer_values += [each.values for each in ended(asked)]
    assert answer_values == [{"room": "room_1", "version": 1}, {"room": "room_2", "version": 2}]


def test_a_changing_dimension_answers_as_of_the_time_of_the_row(tmp_path: Path) -> None:
    changes: list[tuple[str, str, datetime | None, datetime | None]] = []
    changes += [("s1", "room_2", at(20), None), ("s1", "room_1", at(10), None), ("s2", "room_3", at(10), at(15))]
    changes += [("s3", "room_5", at(20), None), ("s3", "room_4", None, at(15))]
    history = DimensionLookup(
        rooms(tmp_path, changes), {"id": "sensor"}, ("room",), valid_from="since", valid_to="until", at="at"
    )
    asked = [("s1", at(9.999)), ("s1", at(10)), ("s1", at(19.999)), ("s1", at(20)), ("s2", at(14.999)), ("s2", at(15))]
    asked += [("s3", at(0)), ("s3", at(15)), ("s3", at(20))]
    room_names = [None if each.values is None else each.values["room"] for each in answers(history, *asked)]
    assert room_names == [None, "room_1", "room_1", "room_2", "room_3", None, "room_4", None, "room_5"]


def test_nothing_is_found_as_of_a_time_that_is_null(tmp_path: Path) -> None:
    history = DimensionLookup(
        rooms(tmp_path, [("s1", "room_1", at(10), None)]), {"id": "sensor"}, ("room",), valid_from="since", at="at"
    )
    enriched = Enriched("rooms", events, history, {"room": "string"}, select=("id", "at"))
    asked = [Question(0, ("id", "at"), ("s1", None), "key")]
    with closing(Calls(enriched, lambda: NOW)) as calls:
        calls.ask(asked)
        (answer,) = ended(asked)
    assert (answer.values, answer.error) == (None, None)


def test_keys_that_repeat_and_tables_that_are_not_there_are_failures_with_the_way_out(tmp_path: Path) -> None:
    uri = rooms(tmp_path / "twice", [("s1", "room_1", None, None), ("s1", "room_2", None, None)])
    lookup = DimensionLookup(uri, {"id": "sensor"}, ("room",))
    missing = DimensionLookup(str(tmp_path / "missing"), {"id": "sensor"}, ("room",))
    errors = [str(answers(each, ("s1", at(0)))[0].error) for each in (lookup, missing)]
    assert "has several rows for ('s1',); name valid_from=" in errors[0]
    assert "there is no Delta table at" in errors[1]


def test_a_dimension_of_changes_needs_the_column_of_the_time() -> None:
    with pytest.raises(DeclarationError, match="needs both valid_from=, a column of the table, and at="):
        DimensionLookup("rooms", {"id": "sensor"}, ("room",), valid_from="since")


def test_a_null_is_equal_to_no_key_and_a_nan_to_a_nan(tmp_path: Path) -> None:
    columns = [pa.array([1.5, None, float("nan")]), pa.array(["half", "NULL", "nan"])]
    write_deltalake(str(tmp_path), pa.table(columns, names=["key", "room"]))
    lookup = DimensionLookup(str(tmp_path), {"id": "key"}, ("room",))
    enriched = Enriched("rooms", events, lookup, {"room": "string"}, select=("id",))
    keys = python_values(pa.array([1.5, None, float("nan"), 2.5]))
    asked = [Question(n, ("id",), (key,), "key") for n, key in enumerate(keys)]
    with closing(Calls(enriched, lambda: NOW)) as calls:
        calls.ask(asked)
        assert [each.values for each in ended(asked)] == [{"room": "half"}, None, {"room": "nan"}, None]


@pytest.mark.parametrize(
    ("asked", "of_table", "fit"),
    [
        (pa.string(), pa.int64(), False),
        (pa.int64(), pa.string(), False),
        (pa.timestamp("us", "UTC"), pa.int64(), False),
        (pa.date32(), pa.timestamp("us", "UTC"), False),
        (pa.decimal128(10, 2), pa.float64(), False),
        (pa.bool_(), pa.int64(), False),
        (pa.int32(), pa.int64(), True),
        (pa.int64(), pa.decimal128(38, 0), True),
        (pa.int64(), pa.float64(), True),
        (pa.string(), pa.string(), True),
        (pa.timestamp("us", "UTC"), pa.timestamp("us", "UTC"), True),
        (pa.binary(), pa.binary(), True),
    ],
)
def test_keys_of_types_without_a_value_in_common_are_refused_before_anything_is_asked(
    tmp_path: Path, asked: pa.DataType, of_table: pa.DataType, fit: bool
) -> None:
    write_deltalake(str(tmp_path), pa.table({"key": pa.array([], of_table), "room": pa.array([], pa.string())}))
    lookup, types = DimensionLookup(str(tmp_path), {"k": "key"}, ("room",)), pa.schema([("k", asked)])
    if fit:
        lookup.check_types(types)
    else:
        with pytest.raises(
            DimensionError, match=r"column 'k' is of type .*, and 'key' of .* of type .*derive a column"
        ):
            lookup.check_types(types)


def test_a_key_that_is_no_column_is_refused_and_a_table_that_is_not_there_yet_is_not(tmp_path: Path) -> None:
    types = pa.schema([("id", pa.string())])
    DimensionLookup(str(tmp_path / "later"), {"id": "sensor"}, ("room",)).check_types(types)
    uri = rooms(tmp_path, [("s1", "room_1", None, None)])
    with pytest.raises(DimensionError, match="'of' is no column of the row that is asked for, which has: id"):
        DimensionLookup(uri, {"of": "sensor"}, ("room",)).check_types(types)
    with pytest.raises(DimensionError, match=r"'key' is no column of .*, which has: sensor, room, since, until"):
        DimensionLookup(uri, {"id": "key"}, ("room",)).check_types(types)


def test_keys_that_become_of_another_type_are_told_and_find_nothing(tmp_path: Path) -> None:
    uri = rooms(tmp_path, [("s1", "room_1", None, None)])
    lookup = DimensionLookup(uri, {"id": "sensor"}, ("room",), fresh_for="0 seconds")
    enriched = Enriched("rooms", events, lookup, {"room": "string"}, select=("id",))
    with closing(Calls(enriched, lambda: NOW)) as calls:

        def ask() -> Answer:
            asked = [Question(0, ("id",), ("s1",), "key")]
            calls.ask(asked)
            return ended(asked)[0]

        assert ask().values == {"room": "room_1"}
        changed = pa.table({"sensor": pa.array([1]), "room": pa.array(["room_1"])})
        write_deltalake(uri, changed, mode="overwrite", schema_mode="overwrite")
        assert "were sensor string and are sensor int64 in version 1; run again" in (ask().error or "")
