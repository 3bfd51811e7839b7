"""What a receiver asks for: each value of the first stream's valid rows, once on each connection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from docs.examples.city_temperatures import events, temperatures_in
from streaming import Lake
from streaming.service import receivers
from streaming.service.receivers import Subscribing
from streaming.tables import delta
from tests.support.instants import T0, at


@pytest.fixture(autouse=True)
def looks_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receivers, "_LOOKS_FOR_VALUES_EVERY", 0.0)


def named(lake: Lake, *cities: str | None, rejected: bool = False) -> None:
    """Rows of the first stream, as its log has them."""
    reasons = pa.array([["broken"] if rejected else None] * len(cities), pa.list_(pa.string()))
    rows = pa.table({"city_code": pa.array(cities, pa.string()), "_rejected": reasons})
    write_deltalake(lake.log(events), rows, mode="append")


def asks(lake: Lake, now: datetime = T0) -> tuple[Callable[[], Sequence[str]], Subscribing]:
    """A process that begins, on its first connection."""
    asking = Subscribing(lake, temperatures_in, lambda: now)
    return asking.requests(), asking


def message(city: str) -> str:
    return f'{{"city": "{city}"}}'


def test_nothing_is_asked_for_before_the_first_stream_has_a_log(lake: Lake) -> None:
    requests, _ = asks(lake)
    assert requests() == []
    named(lake, "BER")
    assert requests() == [message("BER")]


def test_each_value_of_valid_rows_is_asked_for_once_on_a_connection_and_again_on_the_next(lake: Lake) -> None:
    named(lake, "PAR", "BER", None, "PAR")
    named(lake, "ZZZ", rejected=True)
    requests, asking = asks(lake)
    assert requests() == [message("BER"), message("PAR")]
    assert requests() == []
    named(lake, "ROM", "BER")
    DeltaTable(lake.log(events)).optimize.compact()
    assert requests() == [message("ROM")]
    assert asking.requests()() == [message("BER"), message("PAR"), message("ROM")]


def test_values_outlive_the_log_that_named_them_in_the_order_in_which_they_were_seen(lake: Lake) -> None:
    named(lake, "PAR", "BER")
    asks(lake)[0]()
    named(lake, "AMS")
    asks(lake, at(60))[0]()
    DeltaTable(lake.log(events)).delete()
    assert asks(lake, at(120))[0]() == [message("BER"), message("PAR"), message("AMS")]
    table = delta.open_table(lake.table(temperatures_in, "subscriptions"))
    assert table is not None
    rows = delta.contents(table).sort_by("first_seen").to_pylist()
    assert [row["first_seen"] for row in rows] == [at(0), at(0), at(60)]
    assert rows[-1]["city_code"] == "AMS"


def test_a_portion_is_a_hundred(lake: Lake) -> None:
    named(lake, *(f"C{number:03}" for number in range(250)))
    requests, _ = asks(lake)
    assert [len(requests()) for _ in range(4)] == [100, 100, 50, 0]


def test_a_table_that_cannot_be_read_is_read_later_and_ends_no_connection(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    named(lake, "BER")
    requests, _ = asks(lake)
    with monkeypatch.context() as broken:
        broken.setattr(Subscribing, "_column_in", lambda *_: 1 / 0)
        assert requests() == []
    assert requests() == [message("BER")]
