"""Lines to a terminal and to a server that listens."""

from __future__ import annotations

import json
import socket
import threading

import pytest

from streaming import Lake
from streaming.base.errors import DeclarationError, SinkError
from streaming.sinks.printing import Console, Socket
from streaming.sinks.sink import Delivered
from tests.streaming.sinks.contract import batch, deliver

NOWHERE = Lake("/nowhere")


def test_x15_console_lines_name_delivery_and_batch(capsys: pytest.CaptureFixture[str]) -> None:
    deliver(Console().connect(NOWHERE, Delivered("numbers/all")), batch(7, 1, 2))
    assert capsys.readouterr().out == 'all 7> {"number":1}\nall 7> {"number":2}\n'


def test_x8_one_line_per_row_to_whoever_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        received: list[bytes] = []

        def listen() -> None:
            connection, _ = server.accept()
            with connection, connection.makefile("rb") as lines:
                received.extend(lines)

        listener = threading.Thread(target=listen)
        listener.start()
        sink = Socket("127.0.0.1", server.getsockname()[1]).connect(NOWHERE, Delivered("numbers/all"))
        sink.deliver(batch(0, 1, 2), lambda refused: None)
        sink.deliver(batch(1, 3), lambda refused: None)
        sink.close()
        listener.join(30)
    assert [json.loads(line)["number"] for line in received] == [1, 2, 3]


def test_x8_nobody_listens() -> None:
    sink = Socket("127.0.0.1", 1).connect(NOWHERE, Delivered("numbers/all"))
    with pytest.raises(SinkError, match=r"nobody listens at 127\.0\.0\.1:1 .*start the server"):
        sink.deliver(batch(0, 1), lambda refused: None)


def test_a_port_that_is_none_is_refused() -> None:
    with pytest.raises(DeclarationError, match="port=70000 of Socket is no port; use 1 to 65535"):
        Socket("localhost", 70_000)
