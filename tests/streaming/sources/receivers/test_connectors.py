"""Every connector keeps the contract, and the contract sees one whose cursor is not behind its rows."""

from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg
import pytest

from streaming import HttpPoll, Received, Reception, TcpSocket, Websocket
from streaming.base.errors import ReceiverError
from streaming.examples.table_rows import TableRows
from tests.streaming.sources.receivers.contract import check_connector
from tests.support.certificates import self_signed, server_side
from tests.support.servers import Answer, Asked, city_server, line_server, polled_server

ROWS = [b"1", b"2", b"3"]


def test_a_socket_keeps_the_contract() -> None:
    with line_server() as server:
        check_connector(TcpSocket("127.0.0.1", server.port), ROWS, lambda: server.send(b"1\n2\r\n3\n"))


def test_an_encrypted_socket_keeps_the_contract_and_trusts_no_certificate_but_those_it_is_to(tmp_path: Path) -> None:
    own = self_signed(tmp_path)
    with line_server(tls=server_side(own)) as server:
        trusting = TcpSocket("127.0.0.1", server.port, ssl=True, ca=str(own))
        check_connector(trusting, ROWS, lambda: server.send(b"1\n2\r\n3\n"))
        for untrusting, told in (
            (replace(trusting, ca=None), r"tls://127.0.0.1:\d+ cannot be reached: its certificate is .* ca='ca.pem'"),
            (replace(trusting, host="localhost"), "certificate is not to be trusted .*Hostname mismatch"),
            (replace(trusting, ca=str(tmp_path / "none.pem")), "none.pem' of .* cannot be read .* name a PEM file"),
        ):
            with pytest.raises(ReceiverError, match=told):
                next(untrusting.receive(Reception()))
    with line_server() as plain, pytest.raises(ReceiverError, match="cannot be reached"):
        receiving = replace(trusting, port=plain.port, connects_within="200 milliseconds").receive(Reception())
        next(receiving)


def test_a_websocket_keeps_the_contract() -> None:
    with city_server({"BER": ["1", "2", "3"]}) as server:
        check_connector(Websocket(server.url, opening=('{"city": "BER"}',)), ROWS)


def numbers(asked: Asked) -> Answer:
    """An API of three numbers, one at a time."""
    number = int(asked.query.get("cursor", 0)) + 1
    rows = [number] if number < 4 else []
    return Answer(json.dumps({"rows": rows, "next": number if rows else None}).encode())


def test_a_polled_api_keeps_the_contract() -> None:
    with polled_server(numbers) as server:
        check_connector(HttpPoll(server.url, "1 second", rows_in="rows", cursor_in="next"), ROWS)


def test_a_table_of_a_database_keeps_the_contract(postgres: str) -> None:
    with psycopg.connect(postgres) as connection:
        connection.execute("create table events (id bigint primary key, v int)")
        connection.execute("insert into events values (1, 5), (2, null)")
    check_connector(TableRows("events", postgres), [b'{"id":1,"v":5}', b'{"id":2,"v":null}'])


@dataclass(frozen=True)
class Forgetful(HttpPoll):
    """Begins anew whatever was landed."""

    def receive(self, reception: Reception) -> Generator[Received, None, None]:
        yield from super().receive(replace(reception, cursor=None))


def test_the_contract_sees_a_connector_that_forgets_its_cursor() -> None:
    with (
        polled_server(numbers) as server,
        pytest.raises(AssertionError, match="the cursor is not behind the rows"),
    ):
        check_connector(Forgetful(server.url, "1 second", rows_in="rows", cursor_in="next"), ROWS)


def test_what_cannot_be_reached_is_told_and_no_failure_of_another_kind() -> None:
    with line_server() as server:
        gone = server.port
    for connector in (
        TcpSocket("127.0.0.1", gone),
        TcpSocket("host.invalid", 1),
        Websocket(f"ws://127.0.0.1:{gone}/"),
        HttpPoll(f"http://127.0.0.1:{gone}/"),
    ):
        with pytest.raises(ReceiverError, match=r"cannot be reached|is away"):
            next(connector.receive(Reception()))
