"""Rows to an HTTP API: arrays of JSON objects, each with an idempotency key."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import httpx

from streaming.base import DeclarationError, FrozenMapping, SinkError, check_mapping, check_tuple, check_type, interval
from streaming.lake import Lake
from streaming.sinks.rest_sink import REFUSED, Answers, ItemErrors, RestSink
from streaming.sinks.sink import Delivered, Guarantee, Sink, Target

_LEAST_STATUS, _GREATEST_STATUS = 200, 599


@dataclass(frozen=True)
class Rest(Target):
    """POSTs to `url`, each a JSON array of `batch` rows; fewer once rows have waited for `flush`, or the input ended.

    2xx means that all rows of a request are there, and so does a status in `done`, such as 409 of a server that has
    them already; where it means that one of them was there, let `batch` be 1. A status in `refused` is about the
    rows: the array is halved until a refused row is alone, which becomes a dead letter. Every other answer, and none
    at all within `timeout`, means that the target is away: it is waited for, at least as long as `Retry-After` says.
    Redirects are not followed. Statuses that may as well be about the address or the server, which are all but 400,
    409, 413 and 422, are about the rows only while an empty array, which is posted to find out, is not answered in
    the same way. A server that answers 500 for a row that it stumbles over needs `refused=(*Rest.refused, 500)`.

    `item_errors` reads answers that tell rows apart, such as 207 or a body with `"errors": true`: a function of status,
    body and rows, called for each answer that is done, which returns why rows are refused, by their position in what
    was posted. They become dead letters; the others count as taken. It raises SinkError to have all of them sent again.

    `headers` are sent as they are; `secret_headers` maps a header to the environment variable that holds its value.

    Raises:
        DeclarationError: the URL, an interval, a header or a status cannot be, or the function is none.
    """

    url: str
    batch: int = 1_000
    flush: str | None = "5 seconds"
    headers: Mapping[str, str] = field(default_factory=dict)
    secret_headers: Mapping[str, str] = field(default_factory=dict)
    timeout: str = "30 seconds"
    refused: tuple[int, ...] = REFUSED
    done: tuple[int, ...] = ()
    item_errors: ItemErrors | None = None

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
        self._check_answers()

    def _check_answers(self) -> None:
        for name in ("refused", "done"):
            statuses = getattr(self, name)
            check_tuple(f"{name} of Rest", statuses, int, f"a tuple of statuses, such as {name}=(409,)")
            for status in statuses:
                if not _LEAST_STATUS <= status <= _GREATEST_STATUS:
                    raise DeclarationError(f"{name} of Rest has {status!r}, which is no status; use 200 to 599.")
        both = sorted({*self.refused} & {*self.done})
        if both:
            others = tuple(status for status in self.refused if status not in self.done)
            raise DeclarationError(
                f"status {both[0]} of Rest is both refused and done; say which it is, such as with refused={others!r}."
            )
        if self.item_errors is not None:
            try:
                pickle.dumps(self.item_errors)
                is_function = callable(self.item_errors)
            except Exception:
                is_function = False
            if not is_function:
                raise DeclarationError(
                    f"item_errors of Rest is {self.item_errors!r}; write it as a function of a module, with `def`, of "
                    "status, body and rows."
                )

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
        answers = Answers(self.refused, self.done, self.item_errors)
        return RestSink(self.url, self.address, headers, self.timeout, answers)
