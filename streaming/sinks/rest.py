"""Rows to an HTTP API: arrays of JSON objects, each with an idempotency key."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import httpx

from streaming.base import DeclarationError, FrozenMapping, SinkError, check_mapping, check_type, interval
from streaming.lake import Lake
from streaming.sinks.rest_sink import RestSink
from streaming.sinks.sink import Delivered, Guarantee, Sink, Target


@dataclass(frozen=True)
class Rest(Target):
    """POSTs to `url`, each a JSON array of `batch` rows; fewer once rows have waited for `flush`, or the input ended.

    400, 413 and 422 are about the rows: the array is halved until a refused row is alone, which becomes a dead letter.
    Every other answer but 2xx, and none at all within `timeout`, means that the target is away: it is waited for, at
    least as long as `Retry-After` says. Redirects are not followed.

    `headers` are sent as they are; `secret_headers` maps a header to the environment variable that holds its value.

    Raises:
        DeclarationError: the URL, an interval or a header cannot be.
    """

    url: str
    batch: int = 1_000
    flush: str | None = "5 seconds"
    headers: Mapping[str, str] = field(default_factory=dict)
    secret_headers: Mapping[str, str] = field(default_factory=dict)
    timeout: str = "30 seconds"

    kind: ClassVar[str] = "http"
    guarantee: ClassVar[Guarantee] = "at least once"

    def __post_init__(self) -> None:
        check_type("url of Rest", self.url, str, "a URL, such as 'https://api.example/orders'")
        try:
            url = httpx.URL(self.url)
        except httpx.InvalidURL as error:
            raise DeclarationError(f"url={self.url!r} of Rest cannot be read: {error}.") from error
        if url.scheme not in ("http", "https") or not url.host:
            raise DeclarationError(f"url={self.url!r} of Rest is no address; write 'https://host/path'.")
        if url.userinfo:
            raise DeclarationError(
                f"the url of Rest to {url.host!r} has a user or password in it; send them with secret_headers="
                "{'Authorization': 'NAME_OF_A_VARIABLE'}."
            )
        for length in filter(None, (self.flush, self.timeout)):
            interval(length)
        for name in ("headers", "secret_headers"):
            check_mapping(f"{name} of Rest", getattr(self, name), str, "a dict from header to text")
            object.__setattr__(self, name, FrozenMapping(getattr(self, name)))

    @property
    def address(self) -> str:
        """The URL without its query, which may hold a token."""
        return str(httpx.URL(self.url).copy_with(query=None))

    def connect(self, lake: Lake, delivered: Delivered) -> Sink:
        """A client that keeps its connections.

        Raises:
            SinkError: an environment variable of `secret_headers` is not set.
        """
        headers = dict(self.headers)
        for header, variable in self.secret_headers.items():
            if variable not in os.environ:
                raise SinkError(f"{self.address}: header {header!r} is to be in {variable}, which is not set; set it.")
            headers[header] = os.environ[variable]
        return RestSink(self.url, self.address, headers, self.timeout)
