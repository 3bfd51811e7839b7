"""Rows to a real HTTP server that misbehaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pytest

from streaming import Lake
from streaming.base.errors import DeclarationError, SinkError
from streaming.sinks.rest import Rest
from streaming.sinks.sink import REVISION, Delivered, NumberedBatch, RefusedRow
from tests.streaming.sinks.contract import LAWS, Arrivals, deliver
from tests.support.certificates import self_signed, server_side
from tests.support.http_server import HttpServer, Posted, http_server


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


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_refused_array_is_halved_until_the_refused_row_is_alone(status: int, server: HttpServer) -> None:
    server.answer = lambda posted: status if {5} & {row["value"] for row in posted.rows} else 200
    refused = send(Rest(server.url), *range(8))
    assert [(row.position, row.error) for row in refused] == [(5, f"{status} {refused[0].error[4:]}")]
    assert f"answer {status}" in refused[0].error
    assert [[row["value"] for row in posted.rows] for posted in server.taken] == [[0, 1, 2, 3], [4], [6, 7]]
    assert [posted.key for posted in server.posted] == [
        *("a/b/1/3", "a/b/1/3/0-3", "a/b/1/3/4-7", "a/b/1/3/4-5", "a/b/1/3/4-4", "a/b/1/3/5-5", "a/b/1/3/6-7")
    ]


@pytest.mark.parametrize("status", [301, 401, 403, 404, 408, 409, 429, 500, 503])
def test_an_answer_that_is_not_about_rows_means_away(status: int, server: HttpServer) -> None:
    server.answer = lambda posted: status
    with pytest.raises(SinkError, match=f"answers {status} ") as error:
        send(Rest(server.url), 1, 2)
    assert error.value.retry_after is None
    assert len(server.posted) == 1


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
    target = Rest(f"{server.url}?token=hunter2", secret_headers={"Authorization": "SHOP_TOKEN"}, headers={"X-By": "me"})
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
        ({"url": "http://x/", "flush": "soon"}, "'soon' is not an interval"),
        ({"url": "http://x/", "headers": {"a": 1}}, "'a' in headers of Rest is 1"),
    ],
)
def test_what_cannot_be_posted_to_is_refused(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(DeclarationError, match=reason) as error:
        Rest(**given)
    assert "hunter2" not in str(error.value)
