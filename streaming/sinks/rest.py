"""Rows to an HTTP API: arrays of JSON objects, each with an idempotency key."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import httpx

from streaming.base import (
    SECRET_HEADERS,
    Dataset,
    DeclarationError,
    FrozenMapping,
    SinkError,
    check_mapping,
    check_tuple,
    check_url,
    dataset_at,
    host_of,
    interval,
    retry_after,
)
from streaming.lake import Lake
from streaming.sinks.encoding import json_objects
from streaming.sinks.sink import Delivered, Guarantee, NumberedBatch, PutAside, RefusedRow, Sink, Target

_LEAST_STATUS, _GREATEST_STATUS = 200, 599
_IDEMPOTENCY_KEY = "Idempotency-Key"
"""The header that names a request: a server that honours it takes each row once."""

_REFUSED = (400, 404, 409, 410, 413, 422)
"""Statuses that refuse rows, unless a declaration says otherwise."""
_ABOUT_ROWS_ALONE = (400, 409, 413, 422)
"""Statuses that an address which is wrong, or a server which is down, does not answer with."""

_ItemErrors = Callable[[int, str, Sequence[Mapping[str, Any]]], Mapping[int, str]]
"""Why rows are refused, by their position: of the status, the body and the rows of a request that was answered."""

_TOLD = 500


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
    refused: tuple[int, ...] = _REFUSED
    done: tuple[int, ...] = ()
    item_errors: _ItemErrors | None = None

    kind: ClassVar[str] = "http"
    guarantee: ClassVar[Guarantee] = "at least once"

    def __post_init__(self) -> None:
        check_url("Rest", self.url, "https://host/path", instead=SECRET_HEADERS)
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
        """The host: the path of a webhook is a secret, and a query may hold a token."""
        return f"{host_of(self.url)}/..."

    def datasets(self, lake: Lake) -> tuple[Dataset, ...]:
        """The host: the path of a webhook is a secret."""
        here = dataset_at(str(httpx.URL(self.url).copy_with(path="/")))
        return () if here is None else (here,)

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
        return _RestSink(self.url, self.address, headers, self.timeout, answers)


@dataclass(frozen=True)
class Answers:
    """The meaning of answers: statuses that refuse rows or, besides 2xx, take them, and how items are told apart."""

    refused: tuple[int, ...] = _REFUSED
    done: tuple[int, ...] = ()
    item_errors: _ItemErrors | None = None

    def is_done(self, status: int) -> bool:
        """True if the rows are there, but for those that `refused_items` names."""
        return status in self.done or (200 <= status < 300 and status not in self.refused)

    def is_refused(self, status: int) -> bool:
        """True if a row, or one of several, is refused."""
        return status in self.refused

    def is_about_rows_alone(self, status: int) -> bool:
        """True if nothing but rows can have led to the status."""
        return status in _ABOUT_ROWS_ALONE

    def refused_items(self, address: str, status: int, body: str, rows: Sequence[bytes]) -> dict[int, str]:
        """Which rows of a request that was taken are refused, by their positions in it.

        Raises:
            SinkError: the function that tells fails, or names what was not sent.
        """
        if self.item_errors is None:
            return {}
        name = getattr(self.item_errors, "__qualname__", repr(self.item_errors))
        said = f"for status {status} and {_shortened(body)!r}"
        try:
            told = dict(self.item_errors(status, body, [json.loads(row) for row in rows]))
        except SinkError:
            raise
        except Exception as error:
            raise SinkError(
                f"{address}: the function {name!r} in item_errors raised {type(error).__name__}: {error} {said}. "
                "Correct it; the rows are sent again."
            ) from error
        for position, reason in told.items():
            is_position = isinstance(position, int) and not isinstance(position, bool) and 0 <= position < len(rows)
            if not is_position or not isinstance(reason, str):
                raise SinkError(
                    f"{address}: the function {name!r} in item_errors returned {{{position!r}: {reason!r}}} {said}. It "
                    f"has to return reasons by positions, of which there are 0 to {len(rows) - 1}; correct it, and the "
                    "rows are sent again."
                )
        return told


class _RestSink(Sink):
    """Remembers nothing of what it has sent: the receiver tells batches apart by their keys.

    `address` is how errors call the `url`; `timeout` is an interval.
    """

    def __init__(self, url: str, address: str, headers: Mapping[str, str], timeout: str, answers: Answers) -> None:
        self._answers = answers
        self._url = url
        self._address = address
        self._timeout = timeout
        self._client = httpx.Client(
            headers={"Content-Type": "application/json", **headers}, timeout=interval(timeout).total_seconds()
        )

    def delivered_through(self, generation: int) -> None:
        return None

    def deliver(self, batch: NumberedBatch, put_aside: PutAside) -> None:
        bodies = json_objects(batch.messages)
        refused = self._send(batch.key, bodies, 0, len(bodies))
        put_aside(sorted(refused, key=lambda row: row.position))

    def close(self) -> None:
        self._client.close()

    def _send(self, key: str, bodies: list[bytes], first: int, rows: int) -> Iterator[RefusedRow]:
        """Send some rows, in halves where they are refused; gives those that are refused alone.

        The key of a half is its own, and the same whenever it is sent.
        """
        if not rows:
            return
        whole = rows == len(bodies)
        name = key if whole else f"{key}/{first}-{first + rows - 1}"
        answer = self._post(name, b"[" + b",".join(bodies[first : first + rows]) + b"]")
        status = answer.status_code
        if self._answers.is_done(status):
            sent = bodies[first : first + rows]
            for position, reason in self._answers.refused_items(self._address, status, answer.text, sent).items():
                yield RefusedRow(first + position, f"{status}: {reason}")
            return
        is_final = whole or rows == 1
        if not self._answers.is_refused(status) or (is_final and self._refuses_everything(key, status)):
            raise SinkError(
                f"{self._address} answers {_told(answer)}. The batch is sent again",
                "where the status is about rows, or means that they are there, name it in `refused` or `done` of Rest.",
                address=self._address,
                value=status,
                retry_after=retry_after(answer.headers),
            )
        if rows == 1:
            yield RefusedRow(first, _told(answer))
            return
        half = rows // 2
        yield from self._send(key, bodies, first, half)
        yield from self._send(key, bodies, first + half, rows - half)

    def _refuses_everything(self, key: str, status: int) -> bool:
        """True if a batch without any row is answered in the same way, so that rows are not to blame."""
        if self._answers.is_about_rows_alone(status):
            return False
        return self._post(f"{key}/none", b"[]").status_code == status

    def _post(self, key: str, body: bytes) -> httpx.Response:
        try:
            return self._client.post(self._url, content=body, headers={_IDEMPOTENCY_KEY: key})
        except httpx.HTTPError as error:
            reason = str(error) or f"no answer within {self._timeout}"
            raise SinkError(f"{self._address} is away: {type(error).__name__}: {reason}.") from error


def _told(answer: httpx.Response) -> str:
    text = _shortened(answer.text)
    return f"{answer.status_code} {answer.reason_phrase}" + (f": {text}" if text else "")


def _shortened(text: str) -> str:
    return " ".join(text[:_TOLD].split())
