"""Keys of results, held against those that plain Python finds among the rows."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from docs.examples import nearby_events
from streaming import Joined, Lake
from streaming.reading import StoredRows, result_keys
from streaming.reading.result_keys import keys_in
from tests.support.instants import at


def stored(**columns: Any) -> StoredRows:
    table = pa.table({name: pa.array(values) for name, values in columns.items()})
    return StoredRows(table, tuple(table.column_names), condition="value >= 0")


def test_a_span_is_of_one_instant_of_the_key() -> None:
    created, due = [at(100), at(300), None, at(100), at(0)], [at(10), at(20), at(30), at(40), at(500)]
    rows = stored(m=["a", "b", None, "a", "c"], created=created, due=due, value=[1, 1, 1, 1, -1])
    keys = keys_in(rows, ("m", "created", "due"))
    assert keys is not None
    assert (keys.columns, keys.number, keys.few) == (("m",), 3, ({"m": "a"}, {"m": "b"}, {"m": None}))
    assert (keys.times, keys.of_windows, keys.first, keys.last) == (2, False, at(100), at(300))


def test_a_span_is_of_windows_where_the_key_has_these() -> None:
    starts = [at(0), at(0), at(60)]
    ends = [start + timedelta(seconds=seconds) for start, seconds in zip(starts, (60, 90, 60), strict=True)]
    rows = stored(created=[at(900)] * 3, window_start=starts, window_end=ends, value=[1, 2, 3])
    keys = keys_in(rows, ("created", "window_start", "window_end"))
    assert keys is not None and (keys.columns, keys.number, keys.few) == ((), 0, ())
    assert (keys.times, keys.of_windows, keys.first, keys.last) == (3, True, at(0), at(120))


def test_rows_without_columns_of_the_key_have_no_keys() -> None:
    assert keys_in(stored(m=["a"], value=[1]), ("other",)) is None


def test_results_of_a_join_have_no_key_and_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object) -> None:
        raise AssertionError("they are read")

    # The room gives the function of that name, not the module.
    monkeypatch.setattr(sys.modules[keys_in.__module__], "stored_rows", read)
    joined = next(each for each in nearby_events.pipeline.operators if isinstance(each, Joined))
    assert result_keys(Lake("/none"), nearby_events.pipeline, joined) is None
