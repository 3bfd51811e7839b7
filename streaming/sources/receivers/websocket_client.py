"""A connection to a websocket: opened, asked on, and read in portions."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager

from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.frames import CloseCode
from websockets.sync.client import ClientConnection, connect

from streaming.base import ReceiverError
from streaming.sources.receivers.connector import IDLE, PORTION_BYTES, PORTION_ROWS, Received
from streaming.sources.receivers.web import on_one_line

_CLOSES_WITHIN = 1.0


@contextmanager
def connected(
    url: str, address: str, headers: Mapping[str, str], longest: int, within: float
) -> Iterator[ClientConnection]:
    """A connection for as long as the body lasts, opened `within` seconds, whose messages have at most `longest` bytes.

    Raises:
        ReceiverError: the server cannot be reached, or the connection has ended.
    """
    try:
        connection = connect(
            url, additional_headers=headers, max_size=longest, open_timeout=within, close_timeout=_CLOSES_WITHIN
        )
    except (OSError, WebSocketException) as error:
        raise ReceiverError(f"{address} cannot be reached ({error}); start the server, or correct it.") from error
    with connection:
        try:
            yield connection
        except ConnectionClosed as closed:
            raise ReceiverError(f"{address} has ended the connection ({closed}).") from closed


def portions(connection: ClientConnection, requests: Callable[[], Sequence[str]]) -> Generator[Received, None, None]:
    """The messages that come, a moment's at once; before each portion, what is to be asked for is sent.

    Raises:
        ConnectionClosed: the connection has ended, behind what came before.
    """
    try:
        while True:
            for message in requests():
                connection.send(message)
            yield from _portion(connection)
    except ConnectionClosed as closed:
        if closed.sent is not None and closed.sent.code == CloseCode.MESSAGE_TOO_BIG:
            yield Received(refused=1)
        raise


def _portion(connection: ClientConnection) -> Generator[Received, None, None]:
    rows: list[bytes] = []
    try:
        rows.append(on_one_line(connection.recv(IDLE, decode=False)))
        size = len(rows[0])
        while len(rows) < PORTION_ROWS and size < PORTION_BYTES:
            rows.append(on_one_line(connection.recv(0, decode=False)))
            size += len(rows[-1])
    except TimeoutError:
        yield Received(rows)
    except ConnectionClosed:
        yield Received(rows)
        raise
    else:
        yield Received(rows)
