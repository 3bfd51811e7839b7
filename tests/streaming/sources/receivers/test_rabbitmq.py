"""Messages of real brokers of AMQP 0-9-1: each lands, whatever dies, and those that were landed do not come again."""

from __future__ import annotations

import base64
import json
import logging
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from time import struct_time
from typing import Any

import pytest

from streaming import Lake, RabbitMq, Received, Reception
from streaming.base.errors import ReceiverError, StreamingError
from streaming.sources.receivers import rabbitmq_queue
from streaming.sources.receivers.messages import payload_fields
from streaming.sources.receivers.rabbitmq_queue import BrokerQueue, consuming
from tests.streaming.sources.receivers.contract import check_connector
from tests.support.amqp import Broker, Qpid, RabbitMqServer
from tests.support.pipelines.queued import PORT, VIRTUAL_HOST
from tests.support.receiving import landed, landed_rows, received, running
from tests.support.servers import relay
from tests.support.services import starting
from tests.support.waiting import until

RABBITMQ = RabbitMq("127.0.0.1", "orders")


def test_names_and_numbers_that_cannot_be_are_refused() -> None:
    for wrong, text in (
        ({"queue": ""}, "queue='' of RabbitMq cannot be the name of a queue that stays"),
        ({"queue": "amq.gen-1"}, "queue='amq.gen-1' of RabbitMq cannot be the name of a queue that stays"),
        ({"queue": "é" * 128}, "write one of 1 to 255 bytes"),
        ({"queue": ("orders",)}, "queue of RabbitMq is ('orders',), a tuple"),
        ({"port": 0}, "port=0 of RabbitMq is no port"),
        ({"prefetch": 0}, "prefetch=0 of RabbitMq is no number of messages"),
        ({"prefetch": 65_536}, "prefetch=65536 of RabbitMq is more than AMQP can ask for; write 1 to 65535."),
        ({"longest_message": 0}, "longest_message=0 of RabbitMq is no number of bytes"),
        ({"user": "alice"}, "user='alice' and password=None of RabbitMq belong together"),
        ({"ca": "ca.pem"}, "checks nothing without ssl=True"),
        ({"connects_within": "soon"}, "soon"),
    ):
        with pytest.raises(StreamingError, match=re.escape(text)):
            replace(RABBITMQ, **wrong)


def test_an_address_tells_where_the_queue_is_and_no_secret() -> None:
    assert RABBITMQ.address == "amqp://127.0.0.1:5672, queue orders"
    shop = replace(RABBITMQ, ssl=True, virtual_host="shop", user="alice", password="SHOP_PASSWORD")
    assert shop.address == "amqps://127.0.0.1:5671, virtual host shop, queue orders"
    with pytest.raises(ReceiverError, match="needs SHOP_PASSWORD in the environment"):
        next(shop.receive(Reception()))


def test_a_payload_is_text_where_it_is_utf_8_and_base64_where_it_is_not() -> None:
    assert payload_fields("é\n1".encode()) == {"payload": "é\n1"}
    assert payload_fields(b"\xff") == {"payload_base64": "/w=="}


@pytest.fixture(scope="module")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMqServer]:
    """RabbitMQ itself, where it is installed."""
    server = RabbitMqServer(tmp_path_factory.mktemp("rabbitmq"))
    with starting("RabbitMQ"):
        server.start()
    yield server
    server.end()


def orders(broker: Broker, queue: str) -> RabbitMq:
    """The receiver of a new queue of the broker."""
    broker.declare(queue)
    return RabbitMq("127.0.0.1", queue, broker.port, broker.virtual_host)


def take(connector: RabbitMq, number: int, *, lands: bool, within: float = 30) -> list[bytes]:
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


def test_messages_keep_the_contract(qpid: Qpid) -> None:
    connector = orders(qpid, "contract")
    check_connector(connector, [b"1", b"2 3", b"\xff"], lambda: qpid.publish("contract", b"1", b"2\n3", b"\xff"))


@pytest.mark.long
def test_messages_of_rabbitmq_keep_the_contract(rabbitmq: RabbitMqServer) -> None:
    connector = orders(rabbitmq, "contract")
    check_connector(connector, [b"1", b"2 3", b"\xff"], lambda: rabbitmq.publish("contract", b"1", b"2\n3", b"\xff"))


def test_what_was_not_landed_comes_again_and_what_was_does_not(qpid: Qpid) -> None:
    connector = orders(qpid, "again")
    qpid.publish("again", b"1", b"2")
    assert take(connector, 2, lands=False) == [b"1", b"2"]
    qpid.publish("again", b"3")
    assert take(connector, 3, lands=True) == [b"1", b"2", b"3"]
    qpid.publish("again", b"4")
    assert take(connector, 1, lands=True) == [b"4"]
    assert qpid.waiting("again") == 0


def landing_is_the_word(broker: Broker) -> None:
    connector = orders(broker, "landing")
    broker.publish("landing", b"1", b"2", b"3")
    assert take(connector, 3, lands=False) == [b"1", b"2", b"3"]
    broker.end(killed=True)
    with pytest.raises(ReceiverError, match="cannot be reached"):
        next(connector.receive(Reception()))
    broker.start()
    assert take(connector, 3, lands=True) == [b"1", b"2", b"3"]
    broker.publish("landing", b"4")
    assert take(connector, 1, lands=True) == [b"4"], "what was landed does not come again"
    assert broker.waiting("landing") == 0


@pytest.mark.long
def test_what_was_not_landed_comes_again_also_from_a_broker_that_was_killed(qpid: Qpid) -> None:
    landing_is_the_word(qpid)


@pytest.mark.long
def test_what_was_not_landed_comes_again_also_from_a_rabbitmq_that_was_killed(rabbitmq: RabbitMqServer) -> None:
    landing_is_the_word(rabbitmq)


def envelopes(broker: Broker, connector: RabbitMq) -> list[dict[str, Any]]:
    connector = replace(connector, envelope=True, longest_message=10)
    headers = {"source": "till", "items": 2, "of": {"shop": "Ulm"}}
    broker.publish("envelope", "é\n1".encode(), message_id="m-1", timestamp=1_700_000_000, headers=headers)
    broker.publish("envelope", b"x" * 11, b"\xff")
    return [json.loads(row) for row in take(connector, 2, lands=True)]


ENVELOPES = [
    {
        "exchange": "",
        "routing_key": "envelope",
        "redelivered": False,
        "message_id": "m-1",
        "timestamp": 1_700_000_000,
        "headers": {"source": "till", "items": 2, "of": {"shop": "Ulm"}},
        "payload": "é\n1",
    },
    {
        "exchange": "",
        "routing_key": "envelope",
        "redelivered": False,
        "message_id": None,
        "timestamp": None,
        "headers": None,
        "payload_base64": "/w==",
    },
]


def test_an_envelope_tells_who_sent_what_and_what_is_too_long_is_refused(qpid: Qpid) -> None:
    assert envelopes(qpid, orders(qpid, "envelope")) == ENVELOPES
    assert qpid.waiting("envelope") == 0, "what is refused does not come again"


@pytest.mark.long
def test_rabbitmq_gives_what_is_refused_to_the_dead_letter_exchange(rabbitmq: RabbitMqServer) -> None:
    rabbitmq.declare("too_long")
    rabbitmq.declare("envelope", x_dead_letter_exchange="", x_dead_letter_routing_key="too_long")
    assert envelopes(rabbitmq, RabbitMq("127.0.0.1", "envelope", rabbitmq.port)) == ENVELOPES
    until(lambda: rabbitmq.waiting("too_long") == 1, "in the queue of dead letters")
    assert rabbitmq.waiting("envelope") == 0


@pytest.mark.long
def test_a_message_that_is_refused_alone_holds_up_none_behind_it(rabbitmq: RabbitMqServer) -> None:
    connector = replace(orders(rabbitmq, "refused"), longest_message=10)
    rows: list[bytes] = []
    with closing(connector.receive(Reception())) as receiving:
        for payload in (b"x" * 11, b"1", b"x" * 12, b"2"):
            rabbitmq.publish("refused", payload)
            part = next(part for part in receiving if part.landed is not None)
            assert part.landed is not None and (len(part.rows), part.refused) in ((1, 0), (0, 1))
            part.landed()
            rows += part.rows
    assert rows == [b"1", b"2"]
    assert rabbitmq.waiting("refused") == 0


def test_a_channel_that_the_broker_closes_is_missed(qpid: Qpid) -> None:
    connector = orders(qpid, "closed")
    there = BrokerQueue("127.0.0.1", connector.port_number, connector.virtual_host, "closed", 10)
    with consuming(connector, there) as queue:
        assert queue.portion() == Received()
        # Upon which a broker closes the channel.
        queue._channel._impl.queue_declare("nobody_has_this", passive=True, callback=lambda answer: None)
        with pytest.raises(ReceiverError, match=r"has ended the connection \(.*nobody_has_this"):
            until(lambda: queue.portion().rows, "told")


class InMilliseconds(datetime):
    """An instant that a sender writes in milliseconds, where AMQP has seconds."""

    def utctimetuple(self) -> struct_time:
        return struct_time((1970, 1, 1, 0, 0, int(self.timestamp() * 1_000), 0, 1, 0))


def test_a_message_whose_headers_cannot_be_read_is_a_row_with_its_bytes_and_the_queue_goes_on(qpid: Qpid) -> None:
    """In an envelope its row is no JSON, which a stream rejects; without one its payload is a row as any."""
    plain = orders(qpid, "unreadable")
    unread = {"sent": InMilliseconds(2026, 1, 1, tzinfo=UTC)}
    for connector in (plain, replace(plain, envelope=True)):
        for number, headers in enumerate((None, unread, {"of": "till"})):
            qpid.publish("unreadable", b"%d" % number, headers=headers)
        rows = take(connector, 3, lands=True)
        assert qpid.waiting("unreadable") == 0
        if connector is plain:
            assert rows == [b"0", b"1", b"2"]
    assert [json.loads(row)["payload"] for row in (rows[0], rows[2])] == ["0", "2"]
    text, _, message = rows[1].decode().partition(" of the message ")
    assert re.fullmatch(r"headers cannot be read \(.*year.*\)", text)
    told = json.loads(message)
    assert (told["routing_key"], told["payload"]) == ("unreadable", "1")
    assert b"\x04sentT" in base64.b64decode(told["properties_base64"])
    with pytest.raises(json.JSONDecodeError):
        json.loads(rows[1])


@pytest.mark.long
def test_a_broker_behind_a_network_that_is_cut_is_missed(qpid: Qpid, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rabbitmq_queue, "_HEARTBEAT", 1)
    connector = orders(qpid, "cut")
    with relay(qpid.port) as between, closing(replace(connector, port=between.port).receive(Reception())) as receiving:
        next(receiving)
        between.cut.set()
        with pytest.raises(ReceiverError, match=r"has ended the connection \(.*[Hh]eartbeat"):
            until(lambda: next(receiving).rows, "told")


def test_messages_land_before_they_are_due_once_the_broker_hands_out_no_more(qpid: Qpid, lake: Lake) -> None:
    connector = replace(orders(qpid, "prefetch"), prefetch=10)
    qpid.publish("prefetch", *(str(number).encode() for number in range(25)))
    with running(lake, received(connector, every="1 hour")) as run:
        until(lambda: run.rows == 25, "come")
        until(lambda: len(landed_rows(lake)) == 20, "landed")
    assert [*map(len, landed(lake))] == [10, 10, 5]
    assert landed_rows(lake) == [str(number) for number in range(25)]
    assert qpid.waiting("prefetch") == 0


def test_what_is_not_there_or_not_allowed_is_told(
    qpid: Qpid, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("SHOP_PASSWORD", "open sesame")
    there = RabbitMq("127.0.0.1", "nowhere", qpid.port, qpid.virtual_host, connects_within="5 seconds")
    for wrong, text in (
        ({}, r"queue nowhere cannot be consumed \(.*nowhere.*\); declare and bind the queue"),
        ({"virtual_host": "none"}, r"refuses guest \(.*none.*\); correct user, password or virtual_host"),
        ({"user": "alice", "password": "SHOP_PASSWORD"}, r"refuses alice \(.*\); correct user, password"),
        ({"port": 1}, r"cannot be reached \(.*refused.*\); start the broker"),
        ({"ssl": True}, r"cannot be reached \(.+\); start the broker"),
        ({"ssl": True, "ca": "none.pem"}, r"cannot be reached \(.*No such file.*\)"),
        ({"host": "nobody.invalid"}, r"cannot be reached \(.+\); start the broker"),
    ):
        with pytest.raises(ReceiverError, match=text) as raised:
            next(replace(there, **wrong).receive(Reception()))
        assert "open sesame" not in str(raised.value)
    assert "open sesame" not in caplog.text


@pytest.mark.long
def test_an_encrypted_connection_takes_no_certificate_but_those_it_is_to(
    rabbitmq: RabbitMqServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "guest")
    rabbitmq.declare("encrypted")
    rabbitmq.publish("encrypted", b"1")
    trusting = RabbitMq(
        *("127.0.0.1", "encrypted", rabbitmq.encrypted),
        user="guest",
        password="SHOP_PASSWORD",
        ssl=True,
        ca=str(rabbitmq.certificate),
    )
    assert take(trusting, 1, lands=True) == [b"1"]
    for untrusting, text in (
        (replace(trusting, ca=None), "certificate verify failed"),
        (replace(trusting, host="localhost"), "Hostname mismatch"),
    ):
        with pytest.raises(ReceiverError, match=rf"cannot be reached \(.*{text}"):
            next(untrusting.receive(Reception()))


@pytest.mark.long
def test_a_queue_that_is_deleted_is_missed(rabbitmq: RabbitMqServer) -> None:
    connector = orders(rabbitmq, "deleted")
    with closing(connector.receive(Reception())) as receiving:
        next(receiving)
        rabbitmq.delete("deleted")
        with pytest.raises(ReceiverError, match="its queue was deleted or is moving"):
            until(lambda: next(receiving).rows, "told")


@pytest.mark.long
def test_a_stream_of_rabbitmq_is_refused(rabbitmq: RabbitMqServer) -> None:
    rabbitmq.declare("stream", x_queue_type="stream")
    connector = RabbitMq("127.0.0.1", "stream", rabbitmq.port)
    with closing(connector.receive(Reception())) as receiving:
        next(receiving)
        rabbitmq.publish("stream", b"1")
        with pytest.raises(ReceiverError, match="is a stream, of which the broker does not keep in mind"):
            until(lambda: next(receiving).rows, "told")


@pytest.mark.long
def test_a_quorum_queue_of_rabbitmq_is_landed_while_its_broker_is_killed_again_and_again(
    rabbitmq: RabbitMqServer, lake: Lake
) -> None:
    rabbitmq.declare("quorum", x_queue_type="quorum")
    connector = RabbitMq("127.0.0.1", "quorum", rabbitmq.port, prefetch=20)
    every_message_lands(rabbitmq, connector, lake)


@pytest.mark.long
def test_every_message_lands_while_the_broker_is_killed_again_and_again(qpid: Qpid, lake: Lake) -> None:
    every_message_lands(qpid, orders(qpid, "killed"), lake)


def every_message_lands(broker: Broker, connector: RabbitMq, lake: Lake) -> None:
    sent: list[str] = []
    with running(lake, received(connector, every="100 milliseconds")) as run:
        until(lambda: run.statuses and run.status.state == "receiving", "connected")
        for turn in range(3):
            batch = [f"{turn}-{number}" for number in range(50)]
            broker.publish(connector.queue, *(each.encode() for each in batch))
            sent += batch
            until(lambda: run.rows, "rows have come")
            broker.end(killed=turn != 1)
            broker.start()
        until(lambda: {*sent} <= {*landed_rows(lake)}, "landed", within=60)
    assert not run.error and {*landed_rows(lake)} == {*sent}


@pytest.mark.long
@pytest.mark.processes
def test_every_message_lands_though_the_receiver_is_killed_again_and_again(qpid: Qpid, lake: Lake) -> None:
    qpid.declare("queued")
    own = {PORT: str(qpid.port), VIRTUAL_HOST: qpid.virtual_host, "TIDEMARK_HOME": lake.root}
    sent = 0
    for turn in range(3):
        process = subprocess.Popen(
            [sys.executable, "-m", "streaming.service", "receive", "queued", str(os.getpid())],
            env={**os.environ, **own, "TIDEMARK_PIPELINES": "tests.support.pipelines"},
        )
        landed_before = len(landed_rows(lake))
        qpid.publish("queued", *(f'{{"n": {number}}}'.encode() for number in range(sent, sent + 200)))
        sent += 200
        until(lambda: len(landed_rows(lake)) > landed_before, "landed", within=60)  # noqa: B023
        if turn < 2:
            process.kill()
            process.wait()
    until(lambda: len({*landed_rows(lake)}) == sent, "landed", within=60)
    process.terminate()
    assert process.wait(20) == 0
    assert {*landed_rows(lake)} == {f'{{"n": {number}}}' for number in range(sent)}
    twice = len(landed_rows(lake)) - sent
    assert twice <= 2 * 20, "more came twice than a broker hands out without an acknowledgement"
    assert qpid.waiting("queued") == 0
