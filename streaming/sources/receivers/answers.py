"""The answers of an HTTP API, as rows and the place behind them: pure functions."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streaming.base import ReceiverError
from streaming.sources.receivers.web import on_one_line

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
