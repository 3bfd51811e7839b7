"""Every connector keeps the contract, and the contract sees one whose cursor is not behind its rows."""

from __future__ import annotations

import json
import socket
import ssl
import struct
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Thread

import psycopg
import pytest

from docs.examples.table_rows import TableRows
from platform_assets.demo.feeds import free_port
from streaming import HttpPoll, Received, Reception, TcpListener, TcpSocket, Websocket
from streaming.base.errors import ReceiverError
from streaming.sources.receivers import Connector, tcp, websocket_client
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
        for untrusting, reason in (
            (replace(trusting, ca=None), r"tls://127.0.0.1:\d+ cannot be reached: its certificate is .* ca='ca.pem'"),
            (replace(trusting, host="localhost"), "certificate is not to be trusted .*Hostname mismatch"),
            (replace(trusting, ca=str(tmp_path / "none.pem")), "none.pem' of .* cannot be read .* name a PEM file"),
        ):
            with pytest.raises(ReceiverError, match=reason):
                next(untrusting.receive(Reception()))
    with line_server() as plain, pytest.raises(ReceiverError, match="cannot be reached"):
        receiving = replace(trusting, port=plain.port, connects_within="200 milliseconds").receive(Reception())
        next(receiving)


def test_an_encrypted_port_hears_who_speaks_tls_and_is_held_up_by_nobody_else(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINES_TOKEN", "open sesame")
    own = self_signed(tmp_path)
    connector = TcpListener(port, token="LINES_TOKEN", certificate=str(own))
    assert connector.address.startswith("tls://")
    check_connector(replace(connector, token=None), ROWS, lambda: said_encrypted(port, own, b"1\n2\r\n3"))
    rows, refused = list[bytes](), 0
    with closing(connector.receive(Reception())) as receiving, closing(socket.socket()) as silent:
        next(receiving)
        silent.connect(("127.0.0.1", port))
        told(port, b"open sesame\nplain\n")
        # More than one record of TLS, of which the selector tells only the first.
        speaking = said_encrypted(port, own, b"open sesame\n" + b"x" * 40_000 + b"\n")
        while not rows or not refused:
            part = next(receiving)
            rows, refused = [*rows, *part.rows], refused + part.refused
        speaking.join()
    assert (rows, refused) == ([b"x" * 40_000], 1)
    with pytest.raises(ReceiverError, match=r"none\.pem' and key=None of TcpListener cannot be used"):
        next(replace(connector, certificate=str(tmp_path / "none.pem")).receive(Reception()))


@pytest.fixture
def port() -> int:
    """One that nobody has."""
    return free_port()


def told(port: int, content: bytes) -> None:
    """A client that says this and hangs up."""
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(content)


def said_encrypted(port: int, ca: Path, content: bytes) -> Thread:
    """The same of a client that speaks TLS: in a thread, as both sides have a say before it can send."""

    def say() -> None:
        plain = socket.create_connection(("127.0.0.1", port), timeout=10)
        context = ssl.create_default_context(cafile=str(ca))
        with context.wrap_socket(plain, server_hostname="127.0.0.1") as client:
            client.sendall(content)

    speaking = Thread(target=say)
    speaking.start()
    return speaking


def test_a_port_that_is_listened_on_keeps_the_contract(port: int) -> None:
    check_connector(TcpListener(port), ROWS, lambda: told(port, b"1\n2\r\n3"))


def test_several_clients_are_heard_those_without_the_token_are_not_and_lines_that_are_too_long_are_counted(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINES_TOKEN", "open sesame")
    connector = TcpListener(port, "0.0.0.0", token="LINES_TOKEN", clients=1, longest_line=3)
    rows: list[bytes] = []
    refused = 0
    with closing(connector.receive(Reception())) as receiving:
        next(receiving)
        with pytest.raises(ReceiverError, match=r"cannot be listened on .*in use"):
            next(connector.receive(Reception()))
        # One at a time is taken, the others wait for their turn.
        for content in (
            b"open sesame\na\nlong\nb",
            b"row\n",
            b"open sesam\nrow\n",
            b"x" * 2000,
            b"",
            b"open sesame\r\nc\n",
        ):
            told(port, content)
        while len(rows) < 3:
            part = next(receiving)
            rows, refused = [*rows, *part.rows], refused + part.refused
    assert (rows, refused) == ([b"a", b"b", b"c"], 1 + 4)
    monkeypatch.delenv("LINES_TOKEN")
    with pytest.raises(ReceiverError, match="needs LINES_TOKEN in the environment"):
        next(connector.receive(Reception()))


def test_a_client_that_never_says_the_token_makes_room_for_others(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINES_TOKEN", "open sesame")
    monkeypatch.setattr(tcp, "_TOKEN_WITHIN", 0.1)
    connector, rows = TcpListener(port, token="LINES_TOKEN", clients=1), list[bytes]()
    with closing(connector.receive(Reception())) as receiving, closing(socket.socket()) as silent:
        next(receiving)
        silent.connect(("127.0.0.1", port))
        told(port, b"open sesame\na\n")
        while not rows:
            rows += next(receiving).rows
    assert rows == [b"a"]


def test_a_websocket_keeps_the_contract() -> None:
    with city_server({"BER": ["1", "2", "3"]}) as server:
        check_connector(Websocket(server.url, opening=('{"city": "BER"}',)), ROWS)


def numbers(asked: Asked) -> Answer:
    """An API of three numbers, one at a time."""
    number = int(asked.query.get("cursor", 0)) + 1
    rows = [number] if number < 4 else []
    return Answer(json.dumps({"rows": rows, "next": number if rows else None}).encode())


def test_a_portion_of_a_websocket_ends_by_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket_client, "PORTION_BYTES", 1)
    with (
        city_server({"BER": [str(number) for number in range(100)]}) as server,
        closing(Websocket(server.url, opening=('{"city": "BER"}',)).receive(Reception())) as receiving,
    ):
        numbers: list[int] = []
        while sum(numbers) < 100:
            numbers.append(len(next(receiving).rows))
    assert max(numbers) == 1


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


@pytest.mark.parametrize(
    "connector",
    [
        HttpPoll("https://api.example.org:8443/hooks/T0KEN/rows?key=T0KEN"),
        Websocket("wss://api.example.org:8443/stream/T0KEN?key=T0KEN"),
    ],
)
def test_an_address_has_no_part_of_the_url_that_may_be_secret(connector: Connector) -> None:
    assert connector.address.endswith("://api.example.org:8443")


def test_a_line_of_a_client_whose_connection_breaks_off_is_refused(port: int) -> None:
    with closing(TcpListener(port).receive(Reception())) as receiving:
        next(receiving)
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"a,100\nb,12")
            rows: list[bytes] = []
            while rows != [b"a,100"]:
                rows += next(receiving).rows
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        parts = [next(receiving) for _ in range(2)]
    assert (sum(part.refused for part in parts), [row for part in parts for row in part.rows]) == (1, [])


def test_a_cursor_is_of_the_whole_url_and_of_where_it_is_and_tells_no_secret() -> None:
    of_orders = HttpPoll("https://api.example/orders?key=secret", cursor_of_row="id")
    others = [
        replace(of_orders, url="https://api.example/payments?key=secret"),
        replace(of_orders, cursor_of_row="version"),
        replace(of_orders, cursor_of_row=None, cursor_in="next"),
    ]
    assert len({each.cursor_of for each in (of_orders, *others)}) == 4
    assert of_orders.cursor_of == replace(of_orders, every="1 hour", rows_in="items").cursor_of
    assert of_orders.cursor_of.startswith("https://api.example (") and "secret" not in of_orders.cursor_of
