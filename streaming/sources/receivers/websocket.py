"""Messages from a websocket, which may be asked for on the same connection."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from streaming.base import SECRET_HEADERS, FrozenMapping, check_mapping, check_tuple, check_url, host_of, interval
from streaming.sources.receivers.connector import Connector, LandingGuarantee, Received, Reception
from streaming.sources.receivers.web import all_headers


@dataclass(frozen=True)
class Websocket(Connector):
    """Takes what a server pushes: each message is a row, its line breaks become spaces.

    `opening`: messages that are sent on every new connection. Requests for what a stream asks for (see `Subscriptions`)
    are sent on the same connection, and all of them again after it was lost. Where rows cannot be written as fast as
    they come, the server is held up. A message that is longer than `longest_message` bytes is refused and counted, and
    ends the connection.

    `headers` are sent as they are; `secret_headers` maps a header to the environment variable that holds its value.

    Raises:
        DeclarationError: the URL, a header or an interval cannot be.
    """

    url: str
    opening: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    secret_headers: Mapping[str, str] = field(default_factory=dict)
    longest_message: int = 1_000_000
    connects_within: str = "10 seconds"

    guarantee: ClassVar[LandingGuarantee] = "at most once"
    takes_requests: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_url("Websocket", self.url, "wss://host/path", instead=SECRET_HEADERS, schemes=("ws", "wss"))
        check_tuple("opening of Websocket", self.opening, str, "a tuple of messages, also for one of them")
        for name in ("headers", "secret_headers"):
            check_mapping(f"{name} of Websocket", getattr(self, name), str, "a dict from header to text")
            object.__setattr__(self, name, FrozenMapping(getattr(self, name)))
        interval(self.connects_within)

    @property
    def address(self) -> str:
        """Scheme, host and port of the URL: its path and query may hold a token."""
        return host_of(self.url)

    def receive(self, reception: Reception) -> Generator[Received, None, None]:
        """The messages as they come; before each portion, what is to be asked for is sent.

        Raises:
            ReceiverError: the server cannot be reached, or the connection has ended.
        """
        # Only who receives from a websocket loads the library.
        from streaming.sources.receivers.websocket_client import connected, portions

        headers = all_headers(self.address, self.headers, self.secret_headers)
        within = interval(self.connects_within).total_seconds()
        with connected(self.url, self.address, headers, self.longest_message, within) as connection:
            yield Received()
            for message in self.opening:
                connection.send(message)
            yield from portions(connection, reception.requests)
