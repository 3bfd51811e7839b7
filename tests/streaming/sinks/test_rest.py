"""Rows to a real HTTP server that misbehaves."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pytest

from streaming import Lake
from streaming.base.errors import DeclarationError, SinkError
from streaming.sinks.rest import Answers, Rest
from streaming.sinks.sink import REVISION, Delivered, NumberedBatch, RefusedRow
from tests.streaming.sinks.contract import LAWS, Arrivals, deliver
from tests.support.certificates import self_signed, server_side
from tests.support.http_server import HttpServer, Posted, http_server
from tests.support.typed_values import as_python, read_json, typed_rows


@pytest.fixture
def server() -> Iterator[HttpServer]:
    with http_server() as started:
        yield started


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_rest_keeps_the_contract_of_targets(law: Callable[[Arrivals], None], lake: Lake, server: HttpServer) -> None:
    server.answer = lambda posted: 422 if any(row["number"] == -1 for row in posted.rows) else 200
    law(Arrivals(Rest(server.url), lake, lambda: [r["number"] for p in server.taken for r in p.rows], -1))


def send(target: Rest, *values: int, number: int = 3) -> list[RefusedRow]:
    rows = pa.table({"value": list(values), REVISION: list(values)})
    return deliver(target.connect(Lake("/nowhere"), Delivered("a/b")), NumberedBatch("a/b", 1, number, rows))


@pytest.mark.parametrize("status", [400, 409, 413, 422])
def test_a_refused_array_is_halved_until_the_refused_row_is_alone(status: int, server: HttpServer) -> None:
    server.answer = lambda posted: status if {5} & {row["value"] for row in posted.rows} else 200
    refused = send(Rest(server.url), *range(8))
    assert [(row.position, row.error) for row in refused] == [(5, f"{status} {refused[0].error[4:]}")]
    assert f"answer {status}" in refused[0].error
    assert [[row["value"] for row in posted.rows] for posted in server.taken] == [[0, 1, 2, 3], [4], [6, 7]]
    assert [posted.key for posted in server.posted] == [
        *("a/b/1/3", "a/b/1/3/0-3", "a/b/1/3/4-7", "a/b/1/3/4-5", "a/b/1/3/4-4", "a/b/1/3/5-5", "a/b/1/3/6-7")
    ]


@pytest.mark.parametrize("status", [301, 401, 403, 408, 429, 500, 503])
def test_an_answer_that_is_not_about_rows_means_away(status: int, server: HttpServer) -> None:
    server.answer = lambda posted: status
    with pytest.raises(SinkError, match=f"answers {status} ") as error:
        send(Rest(server.url), 1, 2)
    assert error.value.retry_after is None
    assert len(server.posted) == 1


@pytest.mark.parametrize(("status", "given"), [(404, {}), (410, {}), (500, {"refused": (400, 500)})])
def test_a_status_that_may_be_about_the_address_refuses_rows_only_while_an_empty_array_is_taken(
    status: int, given: dict[str, Any], server: HttpServer
) -> None:
    server.answer = lambda posted: status if {2} & {row["value"] for row in posted.rows} else 200
    for values, position in (((1, 2, 3), 1), ((2,), 0)):
        assert [row.position for row in send(Rest(server.url, **given), *values)] == [position]
    assert sorted(row["value"] for row in server.rows()) == [1, 3]
    server.answer = lambda posted: status
    posted_before = len(server.posted)
    with pytest.raises(SinkError, match=f"answers {status} "):
        send(Rest(server.url, **given), 1, 2, 3)
    assert [posted.rows for posted in server.posted[posted_before + 1 :]] == [[]]


def test_a_status_can_mean_that_the_rows_are_there_already(server: HttpServer) -> None:
    server.answer = lambda posted: 409
    assert send(Rest(server.url, refused=(400,), done=(409,)), 1, 2) == []
    assert len(server.posted) == 1


def of_items(status: int, body: str, rows: Sequence[Mapping[str, Any]]) -> Mapping[int, str]:
    """The answers of a server that tells items apart, as bulk APIs do."""
    if status == 202:
        raise SinkError("not now")
    return {place: f"{rows[place]['value']} {why}" for place, why in enumerate(json.loads(body)["items"]) if why}


def test_a_function_tells_from_the_answer_which_rows_are_refused(server: HttpServer) -> None:
    target = pickle.loads(pickle.dumps(Rest(server.url, item_errors=of_items)))
    server.answer = lambda posted: (207, {}, json.dumps({"errors": True, "items": [None, "is a duplicate", None]}))
    assert send(target, 7, 8, 9) == [RefusedRow(1, "207: 8 is a duplicate")]
    assert len(server.posted) == 1
    server.answer = lambda posted: (200, {}, json.dumps({"items": ["half a \ud83d"]}))
    assert send(target, 7) == [RefusedRow(0, "200: 7 half a \ud83d")]
    server.answer = lambda posted: (200, {}, "no JSON")
    with pytest.raises(
        SinkError, match=r"'of_items' in item_errors raised JSONDecodeError: .* for status 200 and 'no J"
    ):
        send(target, 7)
    server.answer = lambda posted: (200, {}, json.dumps({"items": [None, None]}))
    assert send(target, 7) == []
    server.answer = lambda posted: 202
    with pytest.raises(SinkError, match="not now"):
        send(target, 7)


@pytest.mark.parametrize("told", [{3: "x"}, {-1: "x"}, {True: "x"}, {0: 5}])
def test_a_function_that_names_what_was_not_sent_holds_the_batch(told: Any) -> None:
    with pytest.raises(SinkError, match="has to return reasons by positions, of which there are 0 to 2"):
        Answers(item_errors=lambda status, body, rows: told).refused_items("x", 207, "", [b"{}"] * 3)


def test_every_value_is_posted_as_it_was_computed(server: HttpServer) -> None:
    given = typed_rows()
    assert (
        deliver(Rest(server.url).connect(Lake("/nowhere"), Delivered("a/b")), NumberedBatch("a/b", 0, 0, given)) == []
    )
    assert [read_json(row, given.schema) for row in server.rows()] == as_python(given)


def test_it_is_left_alone_for_as_long_as_it_asks(server: HttpServer) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    for text, least, most in (("7", 7, 7), (date, 3500, 3600)):
        server.answer = lambda posted, text=text: (503, {"Retry-After": text})  # type: ignore[misc]
        with pytest.raises(SinkError) as error:
            send(Rest(server.url), 1)
        assert error.value.retry_after is not None
        assert least <= error.value.retry_after <= most


def test_rows_and_secrets_go_nowhere_else_than_declared(
    server: HttpServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_TOKEN", "open sesame")
    server.answer = lambda posted: (307, {"Location": elsewhere.url})
    with http_server() as elsewhere, pytest.raises(SinkError, match="answers 307 "):
        send(Rest(server.url, secret_headers={"Authorization": "API_TOKEN"}), 1)
    assert elsewhere.posted == []

    own = self_signed(tmp_path)
    with http_server(server_side(own)) as encrypted:
        with pytest.raises(SinkError, match=r"is away: ConnectError: .*certificate verify failed"):
            send(Rest(encrypted.url), 1)
        assert encrypted.posted == []
        # The certificates that this machine trusts are those of the process.
        monkeypatch.setenv("SSL_CERT_FILE", str(own))
        assert send(Rest(encrypted.url), 1) == []
        assert encrypted.rows() == [{"value": 1}]


def test_no_answer_in_time_and_nobody_there_mean_away(server: HttpServer) -> None:
    class Hangs(Exception):
        pass

    def hangs(posted: Posted) -> int:
        raise Hangs

    answered = Event()
    server.answer = lambda posted: 200 if answered.wait(60) else 500
    with pytest.raises(SinkError, match="is away: ReadTimeout"):
        send(Rest(server.url, timeout="200 milliseconds"), 1)
    answered.set()
    server.answer = hangs
    with pytest.raises(SinkError, match="is away: RemoteProtocolError"):
        send(Rest(server.url), 1)
    with pytest.raises(SinkError, match="is away: ConnectError"):
        send(Rest("http://127.0.0.1:1/rows"), 1)


def test_secrets_come_from_the_environment_and_are_in_no_text(
    server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_TOKEN", "Bearer hunter2")
    target = Rest(
        f"{server.url}/hunter2?token=hunter2", secret_headers={"Authorization": "SHOP_TOKEN"}, headers={"X-By": "me"}
    )
    send(target, 1)
    assert (server.posted[0].headers["Authorization"], server.posted[0].headers["X-By"]) == ("Bearer hunter2", "me")
    server.answer = lambda posted: 500
    with pytest.raises(SinkError) as error:
        send(target, 1)
    assert "hunter2" not in str(error.value) + target.address
    monkeypatch.delenv("SHOP_TOKEN")
    with pytest.raises(SinkError, match="'Authorization' is to be in SHOP_TOKEN, which is not set"):
        send(target, 1)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"url": "ftp://x/y"}, "is no address"),
        ({"url": "https://me:hunter2@x/y"}, "has a user or password in it"),
        ({"url": "https://me:hunter2/z@x/y"}, "the url of Rest cannot be read"),
        ({"url": "http://x/", "flush": "soon"}, "'soon' is not an interval"),
        ({"url": "http://x/", "headers": {"a": 1}}, "'a' in headers of Rest is 1"),
        ({"url": "http://x/", "refused": (100,)}, "refused of Rest has 100, which is no status; use 200 to 599"),
        ({"url": "http://x/", "done": (600,)}, "done of Rest has 600, which is no status"),
        ({"url": "http://x/", "done": (409,)}, r"status 409 of Rest is both refused and done; .*\(400, 404, 410, 413"),
        ({"url": "http://x/", "item_errors": lambda status, body, rows: {}}, "write it as a function of a module"),
        ({"url": "http://x/", "item_errors": "x"}, "item_errors of Rest is 'x'; write it as a function of a module"),
    ],
)
def test_what_cannot_be_posted_to_is_refused(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(DeclarationError, match=reason) as error:
        Rest(**given)
    assert "hunter2" not in str(error.value)
