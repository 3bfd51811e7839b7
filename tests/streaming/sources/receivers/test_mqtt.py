"""Messages of a real broker of MQTT: each is landed, whatever dies, and those that were landed do not come again."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streaming import Lake, Mqtt, Reception
from streaming.base.errors import DeclarationError, ReceiverError
from streaming.sources.receivers import mqtt_session
from streaming.sources.receivers.connector import PORTION_BYTES
from tests.streaming.sources.receivers.contract import check_connector
from tests.support.mqtt import Broker, broker
from tests.support.receiving import landed_rows, received, running
from tests.support.waiting import until

MQTT = Mqtt("127.0.0.1", ("sensors/#",), "tidemark")


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[Broker]:
    with broker(tmp_path) as started:
        yield started


def test_topics_and_names_that_cannot_be_are_refused_and_no_secret_is_told() -> None:
    for wrong, text in (
        ({"topics": ()}, "topics=() of Mqtt are no filters"),
        ({"topics": ("a/#/b",)}, "topics=('a/#/b',) of Mqtt are no filters"),
        ({"topics": ("a+/b",)}, "topics=('a+/b',) of Mqtt are no filters"),
        ({"topics": "sensors"}, "topics of Mqtt is 'sensors', a str"),
        ({"client_id": ""}, "client_id='' of Mqtt names no session"),
        ({"port": 0}, "port=0 of Mqtt is no port"),
        ({"ca": "ca.pem"}, "checks nothing without ssl=True"),
    ):
        with pytest.raises(DeclarationError, match=re.escape(text)):
            replace(MQTT, **wrong)
    assert replace(MQTT, topics=("+", "a/+/c", "#", "/a")).address == "mqtt://127.0.0.1:1883, topics +, a/+/c, #, /a"
    with pytest.raises(ReceiverError, match="needs MQTT_PASSWORD in the environment"):
        next(replace(MQTT, user="u", password="MQTT_PASSWORD").receive(Reception()))
    with pytest.raises(ReceiverError, match="cannot be reached"):
        next(replace(MQTT, port=1).receive(Reception()))


@pytest.mark.long
def test_messages_keep_the_contract(mosquitto: Broker) -> None:
    rows = [b"1", b"2 3", b"\xff"]
    connector = replace(MQTT, port=mosquitto.port)
    check_connector(connector, rows, lambda: mosquitto.publish("sensors/a", b"1", b"2\n3", b"\xff"))


def take(connector: Mqtt, number: int, *, lands: bool, within: float = 30) -> list[bytes]:
    """So many rows at least, and all that come with them; the test fails where they do not in time."""
    rows: list[bytes] = []
    deadline = time.monotonic() + within
    with closing(connector.receive(Reception())) as receiving:
        while len(rows) < number:
            part = next(receiving)
            rows += part.rows
            if lands and part.landed is not None:
                part.landed()
            assert time.monotonic() < deadline, f"only {len(rows)} of {number} rows came"
        rows += next(receiving).rows
    return rows


@pytest.mark.long
def test_what_was_not_landed_comes_again_also_from_a_broker_that_was_killed(mosquitto: Broker) -> None:
    connector = replace(MQTT, port=mosquitto.port)
    take(connector, 0, lands=True)
    mosquitto.publish("sensors/a", b"1", b"2")
    assert take(connector, 2, lands=False) == [b"1", b"2"]
    # It is away.
    mosquitto.publish("sensors/b", b"3")
    assert take(connector, 3, lands=False) == [b"1", b"2", b"3"]
    mosquitto.end(killed=True)
    mosquitto.start()
    assert take(connector, 3, lands=True) == [b"1", b"2", b"3"]
    mosquitto.publish("sensors/b", b"4")
    assert take(connector, 1, lands=True) == [b"4"], "what was landed does not come again"


@pytest.mark.long
def test_what_its_publisher_asks_no_broker_to_keep_is_landed_where_the_connection_is_lost(
    mosquitto: Broker, lake: Lake
) -> None:
    with running(lake, received(replace(MQTT, port=mosquitto.port), every="1 hour")) as run:
        until(lambda: run.statuses and run.status.state == "receiving", "connected")
        mosquitto.publish("sensors/a", b"kept")
        until(lambda: run.rows == 1, "come")
        mosquitto.publish("sensors/a", b"not kept", qos=0)
        until(lambda: run.rows == 2, "come")
        mosquitto.end(killed=True)
        until(lambda: run.status.state == "waiting", "lost")
        assert landed_rows(lake) == ["kept", "not kept"]
        mosquitto.start()
        until(lambda: run.status.state == "receiving", "connected again")
    # It did not hear that the one had landed, and may give it again.
    assert {*landed_rows(lake)} == {"kept", "not kept"}


@pytest.mark.long
def test_a_topic_of_which_a_broker_keeps_nothing_is_refused(mosquitto: Broker) -> None:
    mosquitto.end()
    mosquitto.settings = "max_qos 0\n"
    mosquitto.start()
    with pytest.raises(ReceiverError, match=r"refuses \(sensors/#: Granted QoS 0\)"):
        next(replace(MQTT, port=mosquitto.port).receive(Reception()))


@pytest.mark.long
def test_a_session_that_its_broker_has_lost_is_told_and_what_is_published_from_then_on_lands(
    mosquitto: Broker, lake: Lake
) -> None:
    pipeline = received(replace(MQTT, port=mosquitto.port), every="100 milliseconds")
    with running(lake, pipeline) as run:
        until(lambda: run.statuses and run.status.state == "receiving", "connected")
        mosquitto.publish("sensors/a", b"before")
        until(lambda: landed_rows(lake) == ["before"], "landed")
    mosquitto.publish("sensors/a", b"kept, and lost with the session")
    mosquitto.end()
    mosquitto.forget()
    mosquitto.start()
    with running(lake, pipeline) as run:
        until(lambda: run.statuses and run.status.losses == 1, "told")
        assert "has no session 'tidemark' any more" in run.status.lost
        mosquitto.publish("sensors/a", b"after")
        until(lambda: landed_rows(lake) == ["before", "after"], "landed")
    renamed = received(replace(MQTT, port=mosquitto.port, client_id="renamed"), every="100 milliseconds")
    for losses in (1, 0):
        with running(lake, renamed) as run:
            until(lambda: run.statuses and run.status.state == "receiving", "connected")
        assert run.status.losses == losses
        assert "has no session 'renamed' (the one before was 'tidemark')" in run.status.lost


@pytest.mark.long
def test_more_messages_wait_for_their_landing_than_a_broker_hands_out_unasked(mosquitto: Broker) -> None:
    connector = replace(MQTT, port=mosquitto.port)
    take(connector, 0, lands=True)
    payloads = [str(number).encode() for number in range(500)]
    mosquitto.publish("sensors/a", *payloads)
    assert take(connector, 500, lands=False) == payloads


@pytest.mark.long
def test_large_messages_are_handed_on_before_they_are_a_thousand(mosquitto: Broker) -> None:
    connector = replace(MQTT, port=mosquitto.port)
    largest, number = 900_000, 20
    sizes: list[int] = []
    with closing(connector.receive(Reception())) as receiving:
        next(receiving)
        mosquitto.publish("sensors/a", *[b"x" * largest] * number)
        while sum(sizes) < largest * number:
            part = next(receiving)
            sizes.append(sum(map(len, part.rows)))
            if part.landed is not None:
                part.landed()
    assert max(sizes) <= PORTION_BYTES + largest


@pytest.mark.long
def test_a_broker_that_hands_out_no_more_waits_for_the_landing_and_for_nothing_else(
    mosquitto: Broker, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mqtt_session, "_IN_FLIGHT", 10)
    connector = replace(MQTT, port=mosquitto.port)
    take(connector, 0, lands=True)
    mosquitto.publish("sensors/a", *(str(number).encode() for number in range(25)))
    with running(lake, received(connector, every="1 hour")) as run:
        until(lambda: run.rows == 25, "come")
        # It may have handed out more than it was asked for.
        until(lambda: len(landed_rows(lake)) >= 20, "landed")
    assert landed_rows(lake) == [str(number) for number in range(25)]


@pytest.mark.long
def test_an_envelope_tells_the_topic_and_what_is_too_long_is_refused(mosquitto: Broker) -> None:
    connector = replace(MQTT, port=mosquitto.port, envelope=True, longest_message=10)
    mosquitto.publish("sensors/kept", b"old", retain=True)
    told: list[Any] = []
    refused = 0
    with closing(connector.receive(Reception())) as receiving:
        next(receiving)
        mosquitto.publish("sensors/a", "é\n1".encode(), b"x" * 11, b"\xff")
        mosquitto.publish("others/a", b"unseen")
        deadline = time.monotonic() + 30
        while len(told) < 3 or not refused:
            assert time.monotonic() < deadline, f"only {told} and {refused} refused came"
            part = next(receiving)
            told += map(json.loads, part.rows)
            refused += part.refused
            if part.landed is not None:
                part.landed()
    assert (told, refused) == (
        [
            {"topic": "sensors/kept", "payload": "old"},
            {"topic": "sensors/a", "payload": "é\n1"},
            {"topic": "sensors/a", "payload_base64": "/w=="},
        ],
        1,
    )
    mosquitto.publish("sensors/a", b"end")
    assert [json.loads(row)["payload"] for row in take(connector, 1, lands=True)] == ["end"], "retained ones come once"


@pytest.mark.long
def test_a_receiver_lands_every_message_while_its_broker_is_killed_again_and_again(
    mosquitto: Broker, lake: Lake
) -> None:
    pipeline = received(replace(MQTT, port=mosquitto.port), every="100 milliseconds")
    sent: list[str] = []
    with running(lake, pipeline) as run:
        until(lambda: run.statuses and run.status.state == "receiving", "connected")
        for turn in range(3):
            batch = [f"{turn}-{number}" for number in range(50)]
            mosquitto.publish("sensors/a", *(each.encode() for each in batch))
            sent += batch
            until(lambda: run.rows, "rows have come")
            mosquitto.end(killed=turn != 1)
            mosquitto.start()
        until(lambda: {*sent} <= {*landed_rows(lake)}, "landed", within=60)
    assert not run.error and {*landed_rows(lake)} == {*sent}
