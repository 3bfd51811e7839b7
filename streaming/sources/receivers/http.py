"""Rows of an HTTP API that is asked again and again; its answers are cut into rows and a place by pure functions."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import httpx

from streaming.base import (
    SECRET_HEADERS,
    DeclarationError,
    FrozenMapping,
    ReceiverError,
    check_mapping,
    check_url,
    host_of,
    interval,
    retry_after,
)
from streaming.sources.receivers.connector import Connector, LandingGuarantee, Received, Reception
from streaming.sources.receivers.web import all_headers, on_one_line, pause

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


@dataclass(frozen=True)
class Place:
    """The progress of a poll: the API's own cursor, and the ETag or digest that tells an answer that came before."""

    cursor: Any = None
    etag: str | None = None
    digest: str | None = None

    @classmethod
    def of(cls, landed: Any, start: Any) -> Place:
        """The place that was landed last; without one, that of the cursor `start`."""
        return cls(start) if landed is None else cls(**landed)

    def as_json(self) -> dict[str, Any]:
        """The place as it is landed."""
        return {"cursor": self.cursor, "etag": self.etag, "digest": self.digest}


@dataclass(frozen=True)
class AnswerForm:
    """Where the rows of an answer are, and the cursor behind them.

    `rows_in`: the field of the answer's object that has the array of rows; without it the answer is an array, one
    object, or an object a line. `cursor_in`: the field of the answer's object with the next cursor. `cursor_of_row`:
    the field of the last row that is the next cursor.
    """

    rows_in: str | None = None
    cursor_in: str | None = None
    cursor_of_row: str | None = None

    def read(self, address: str, body: bytes, headers: Mapping[str, str], before: Place) -> tuple[list[bytes], Place]:
        """The rows of an answer, as they were written, and the place behind them.

        Raises:
            ReceiverError: it is not of this form.
        """
        digest = hashlib.blake2b(body, digest_size=16).hexdigest()
        if digest == before.digest:
            return [], before
        try:
            rows, cursor = self._rows_and_cursor(body.decode())
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ReceiverError(
                f"{address} does not answer as declared ({type(error).__name__}: {error}); correct rows_in, cursor_in "
                f"or cursor_of_row. The answer begins with {body[:200]!r}."
            ) from error
        moved = cursor is not None and cursor != before.cursor
        if rows and not moved and (self.cursor_in or self.cursor_of_row):
            raise ReceiverError(
                f"{address} answers with rows and with a cursor that is not behind them ({cursor!r}, asked with "
                f"{before.cursor!r}): they would come again and again. Correct cursor_in or cursor_of_row."
            )
        if not moved:
            return rows, Place(before.cursor, headers.get("ETag"), digest)
        # Another address from now on, which has answers of its own.
        return rows, Place(cursor)

    def _rows_and_cursor(self, text: str) -> tuple[list[bytes], Any]:
        whole = _value(text)
        if self.rows_in is not None:
            rows = elements(members(text)[self.rows_in])
        elif isinstance(whole, list):
            rows = elements(text)
        elif whole is not None:
            rows = [text.strip()]
        else:
            # Not `splitlines`, for which a line ends at characters, too, that JSON may have within a text.
            rows = [line for line in text.replace("\r", "\n").split("\n") if line.strip()]
        cursor = None if self.cursor_in is None else whole.get(self.cursor_in)
        if self.cursor_of_row is not None and rows:
            cursor = json.loads(rows[-1])[self.cursor_of_row]
        return [on_one_line(row.encode()) for row in rows], cursor


def _value(text: str) -> Any:
    """The text as one JSON value; None where it is none, but perhaps one a line."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def elements(text: str) -> list[str]:
    """The texts of the elements of an array; `text` has to be a valid one."""
    texts: list[str] = []
    at = _behind(text, 0, "[")
    while text[at] != "]":
        end = _end(text, at)
        texts.append(text[at:end])
        at = _behind(text, end, ",")
    return texts


def members(text: str) -> dict[str, str]:
    """The texts of the values of an object, by name; `text` has to be a valid one."""
    texts: dict[str, str] = {}
    at = _behind(text, 0, "{")
    while text[at] != "}":
        end = _end(text, at)
        name = json.loads(text[at:end])
        at = _behind(text, end, ":")
        end = _end(text, at)
        texts[name] = text[at:end]
        at = _behind(text, end, ",")
    return texts


def _behind(text: str, at: int, sign: str) -> int:
    """Where the next value begins, or what closes: behind white space, and behind the `sign` if it comes next."""
    at = _space(text, at)
    return _space(text, at + 1) if text.startswith(sign, at) else at


def _space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return at if match is None else match.end()


def _end(text: str, at: int) -> int:
    return _DECODER.raw_decode(text, at)[1]


@dataclass(frozen=True)
class HttpPoll(Connector):
    """GETs `url` every `every`, and at once while answers bring rows and move the cursor.

    An answer is a JSON array of rows, an object, or an object a line; `rows_in` names the field that has the array
    where the answer is an object around it. A row is landed as it was written.

    The cursor goes out as the query's `parameter`, from `start` on (left out: without it at first). It is the field
    `cursor_in` of the answer, or the field `cursor_of_row` of its last row, and is landed with the rows: exactly once.
    Without a cursor each answer that differs from the one before is landed, once; an ETag that the server gives is sent
    back, so that it need not answer.

    429, 5xx, every other answer but 2xx and 304, and none within `timeout` are tried again, later each time, and at the
    earliest after what `Retry-After` says. Redirects are not followed. An answer has at most `largest_answer` bytes.

    `headers` are sent as they are; `secret_headers` maps a header to the environment variable that holds its value.

    Raises:
        DeclarationError: the URL, an interval or a header cannot be, or there are two cursors.
    """

    url: str
    every: str = "10 seconds"
    rows_in: str | None = None
    cursor_in: str | None = None
    cursor_of_row: str | None = None
    parameter: str = "cursor"
    start: str | int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    secret_headers: Mapping[str, str] = field(default_factory=dict)
    timeout: str = "30 seconds"
    largest_answer: int = 64_000_000

    guarantee: ClassVar[LandingGuarantee] = "exactly once"

    def __post_init__(self) -> None:
        check_url("HttpPoll", self.url, "https://host/path", instead=SECRET_HEADERS)
        for length in (self.every, self.timeout):
            interval(length)
        if self.cursor_in is not None and self.cursor_of_row is not None:
            raise DeclarationError(
                f"cursor_in={self.cursor_in!r} and cursor_of_row={self.cursor_of_row!r} exclude one another; keep the "
                "one that the API asks for."
            )
        for name in ("headers", "secret_headers"):
            check_mapping(f"{name} of HttpPoll", getattr(self, name), str, "a dict from header to text")
            object.__setattr__(self, name, FrozenMapping(getattr(self, name)))

    @property
    def address(self) -> str:
        """Scheme, host and port of the URL: its path and query may hold a token."""
        return host_of(self.url)

    @property
    def cursor_of(self) -> str:
        """The address, and a digest of the whole URL and of where its cursor is."""
        form = [self.url, self.cursor_in, self.cursor_of_row]
        return f"{self.address} ({hashlib.sha256(json.dumps(form).encode()).hexdigest()[:12]})"

    def receive(self, reception: Reception) -> Generator[Received, None, None]:
        """The rows of each answer, with the place behind them as the cursor.

        Raises:
            ReceiverError: the server does not answer as it should.
        """
        headers = all_headers(self.address, self.headers, self.secret_headers)
        form = AnswerForm(self.rows_in, self.cursor_in, self.cursor_of_row)
        place = Place.of(reception.cursor, self.start)
        with httpx.Client(headers=headers, timeout=interval(self.timeout).total_seconds()) as client:
            while True:
                body, answered = self._ask(client, place)
                before = place
                rows, place = ([], place) if body is None else form.read(self.address, body, answered, place)
                yield Received(rows, place.as_json())
                if not rows or place.cursor == before.cursor:
                    yield from pause(interval(self.every).total_seconds())

    def _ask(self, client: httpx.Client, place: Place) -> tuple[bytes | None, Mapping[str, str]]:
        """The body of the answer, None where there is nothing new, and its headers."""
        url = httpx.URL(self.url)
        if place.cursor is not None:
            url = url.copy_merge_params({self.parameter: place.cursor})
        unless = {} if place.etag is None else {"If-None-Match": place.etag}
        try:
            with client.stream("GET", url, headers=unless) as answer:
                if answer.status_code in (httpx.codes.NOT_MODIFIED, httpx.codes.NO_CONTENT):
                    return None, answer.headers
                if not answer.is_success:
                    raise ReceiverError(
                        f"{self.address} answers {answer.status_code} {answer.reason_phrase}.",
                        address=self.address,
                        value=answer.status_code,
                        retry_after=retry_after(answer.headers),
                    )
                return self._body(answer), answer.headers
        except httpx.HTTPError as error:
            reason = str(error) or f"no answer within {self.timeout}"
            raise ReceiverError(f"{self.address} is away: {type(error).__name__}: {reason}.") from error

    def _body(self, answer: httpx.Response) -> bytes:
        body = bytearray()
        for chunk in answer.iter_bytes():
            body += chunk
            if len(body) > self.largest_answer:
                raise ReceiverError(
                    f"{self.address} answers with more than largest_answer={self.largest_answer:,} bytes; ask for less "
                    "at once, or raise it. Nothing of the answer was taken."
                )
        return bytes(body)
