"""Why side effects belong into deliveries: a step that is repeated repeats what its functions did outside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from pyspark.sql import SparkSession

from streaming import Delivery, Keyed, Lake, Rest
from streaming.operators.runtime import runtime_of
from streaming.tables import delta
from tests.support.delivering import Courier, ingested, reading, readings
from tests.support.http_server import HttpServer, http_server
from tests.support.instants import NOW
from tests.support.killed import Killed, killed_at
from tests.support.runs import tuples


@pytest.fixture
def server() -> Iterator[HttpServer]:
    with http_server() as started:
        yield started


def test_x17_a_request_inside_a_step_comes_twice_and_one_of_a_delivery_counts_once(
    spark: SparkSession, lake: Lake, server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Step and delivery each die after the request, before their commit, and are repeated by another process."""
    telling = Keyed("telling", readings, ("id",), "told bigint", "value bigint", _tell)
    ingested(spark, lake, [reading(server.url, 1, 7)])
    with monkeypatch.context() as dying, pytest.raises(Killed):
        killed_at(1, dying)
        _step(spark, lake, telling)
    _step(spark, lake, telling)
    assert tuples(delta.read(spark, lake.table(telling)), "value") == [(7,)], "the table has it once"
    assert [posted.rows for posted in server.taken] == [[{"value": 7}]] * 2, "the server twice, and cannot know"

    server.taken.clear()
    post = Delivery("post", readings, Rest(server.url), select=("value",))
    courier = Courier(spark, lake, post)
    courier.runtime.next_batch(spark, all_of_it=True)
    with monkeypatch.context() as dying, pytest.raises(Killed):
        dying.setattr("streaming.deliveries.ledger.LedgerTable.write", _killed)
        courier.runtime.deliver(spark)
    Courier(spark, lake, post).deliver(all_of_it=True)
    assert [posted.key for posted in server.taken] == ["readings/post/0/0"] * 2
    assert server.rows() == [{"value": 7}], "the key tells the server that it has the batch"


def _tell(key: Any, row: Any) -> None:
    """Post the value to the server that the row names."""
    httpx.post(row.id, json=[{"value": row.value}])
    key.emit(value=row.value)


def _step(spark: SparkSession, lake: Lake, keyed: Keyed) -> None:
    for step in runtime_of(keyed, lake).steps(spark, lambda: NOW):
        step.run()


def _killed(*args: Any) -> None:
    raise Killed
