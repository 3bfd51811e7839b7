"""What a receiver may be declared with; every refusal names the value and says what to write."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from docs.examples.city_temperatures import events, mean_by_city, pipeline, temperatures, temperatures_in
from streaming import Files, HttpPoll, Kafka, Pipeline, Receiver, Subscriptions, TcpListener, TcpSocket, Websocket
from streaming.base.errors import DeclarationError

SOCKET = TcpSocket("127.0.0.1", 9999)
ASKS = Subscriptions(events, "city_code")
FROM_A_TOPIC = replace(events, source=Kafka("broker:9092", topic="events"))


def given(**changes: Any) -> Receiver:
    return Receiver(**{"name": "events_in", "connector": SOCKET, "into": events, **changes})


def held(*receivers: Any) -> Pipeline:
    return Pipeline(name="house", streams=(events, temperatures), operators=(mean_by_city,), receivers=receivers)


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "no port": (lambda: TcpSocket("h", 0), "port=0 of TcpSocket is no port; write a number from 1 to 65535"),
    "no use of ca": (
        lambda: TcpSocket("h", 1, ca="ca.pem"),
        "ca='ca.pem' of TcpSocket checks nothing without ssl=True",
    ),
    "no port to listen on": (lambda: TcpListener(0), "port=0 of TcpListener is no port"),
    "nobody to listen to": (lambda: TcpListener(1, clients=0), "clients=0 of TcpListener takes no line"),
    "open to anybody": (lambda: TcpListener(1, "0.0.0.0"), "lets in anybody .* token='NAME_OF_A_VARIABLE'"),
    "a key to nothing": (lambda: TcpListener(1, key="k.pem"), "key='k.pem' of TcpListener encrypts nothing"),
    "no line": (lambda: TcpSocket("h", 1, longest_line=0), "longest_line=0 takes no line"),
    "no websocket": (
        lambda: Websocket("http://u:p@h/secret"),
        r"the url of Websocket \(http://h\) is no address; write 'wss://host/path'",
    ),
    "password": (lambda: HttpPoll("http://u:p@h/"), "the url of HttpPoll to 'h' has a user or password in it"),
    "two cursors": (lambda: HttpPoll("http://h", cursor_in="a", cursor_of_row="b"), "exclude one another"),
    "interval": (lambda: HttpPoll("http://h", every="5"), "'5' is not an interval"),
    "not files": (lambda: given(into=FROM_A_TOPIC), "reads Kafka, but what is received lands in files; give"),
    "no lines": (
        lambda: given(into=replace(events, source=Files("landing/x", payloads="array"))),
        r"reads Files\(payloads='array'\), but each line that is received is a row of its own; leave payloads out",
    ),
    "the same bytes": (
        lambda: given(into=replace(events, source=Files("landing/x", identity="content"))),
        r"reads Files\(identity='content'\), but files with the same rows are not the same file; leave identity out",
    ),
    "other names": (
        lambda: given(into=replace(events, source=Files("landing/x", names=("*.json", "*.csv")))),
        r"reads Files\(names=\('\*.json', '\*.csv'\)\), and .* lands under names such as 'events_in-1970-.*\.txt'",
    ),
    "no requests": (lambda: given(subscriptions=ASKS), "TcpSocket sends no requests; leave them out"),
    "no rows": (lambda: given(rows_per_file=0), "rows_per_file=0 of receiver 'events_in' lands nothing"),
    "unknown column": (lambda: Subscriptions(events, "city"), "reads unknown column 'city'"),
    "unknown column of a view": (lambda: Subscriptions(mean_by_city, "city"), "reads unknown column 'city'"),
    "message": (lambda: Subscriptions(events, "city_code", "ask"), "message='ask' of Subscriptions has no {value}"),
    "not in a tuple": (
        lambda: Pipeline(events, (mean_by_city,), receivers=given()),  # type: ignore[arg-type]
        r"receivers=\(events_in,\)",
    ),
    "of another pipeline": (
        lambda: Pipeline(temperatures, (mean_by_city,), receivers=(temperatures_in,)),
        "receiver 'temperatures_in' asks for what is in 'city_events', which pipeline 'temperatures' does not have",
    ),
    "name of a stream": (lambda: held(given(name="temperatures")), "receiver name 'temperatures' .* is taken"),
    "twice": (lambda: held(given(), given()), "receiver name 'events_in' of pipeline 'house' is taken"),
    "unknown": (lambda: pipeline.receiver("x"), "has no receiver 'x'; its receivers: temperatures_in"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_receiver_that_cannot_work_is_refused(case: str) -> None:
    declare, text = REFUSED[case]
    with pytest.raises(DeclarationError, match=text):
        declare()


def test_a_pipeline_with_receivers_is_a_value() -> None:
    assert pickle.loads(pickle.dumps(pipeline)) == pipeline
    assert hash(pipeline) == hash(replace(pipeline, trigger=pipeline.trigger))
    assert pipeline.receiver("temperatures_in").subscriptions == temperatures_in.subscriptions


def test_a_message_has_the_value_in_json() -> None:
    assert Subscriptions(events, "city_code").message_for('"BER"') == '{"subscribe": "BER"}'
