"""One batch to an HTTP API: in one request, or in smaller ones where rows of it are refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from streaming.base import SinkError, interval, retry_after
from streaming.sinks.encoding import json_objects
from streaming.sinks.sink import NumberedBatch, PutAside, RefusedRow, Sink

IDEMPOTENCY_KEY = "Idempotency-Key"
"""The header that names a request: a server that honours it takes each row once."""

REFUSED = (400, 404, 409, 410, 413, 422)
"""Statuses that refuse rows, unless a declaration says otherwise."""
_ABOUT_ROWS_ALONE = (400, 409, 413, 422)
"""Statuses that an address which is wrong, or a server which is down, does not answer with."""

ItemErrors = Callable[[int, str, Sequence[Mapping[str, Any]]], Mapping[int, str]]
"""Why rows are refused, by their position: of the status, the body and the rows of a request that was answered."""

_TOLD = 500


@dataclass(frozen=True)
class Answers:
    """What answers mean: statuses that refuse rows, those besides 2xx that take them, and how items are told apart."""

    refused: tuple[int, ...] = REFUSED
    done: tuple[int, ...] = ()
    item_errors: ItemErrors | None = None

    def is_done(self, status: int) -> bool:
        """Whether the rows are there, but for those that `refused_items` names."""
        return status in self.done or (200 <= status < 300 and status not in self.refused)

    def is_refused(self, status: int) -> bool:
        """Whether a row, or one of several, is refused."""
        return status in self.refused

    def is_about_rows_alone(self, status: int) -> bool:
        """Whether nothing else than rows can have led to it."""
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


class RestSink(Sink):
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
                f"{self._address} answers {_told(answer)}. The batch is sent again; where the status is about rows, or "
                "means that they are there, name it in `refused` or `done` of Rest.",
                retry_after(answer.headers),
            )
        if rows == 1:
            yield RefusedRow(first, _told(answer))
            return
        half = rows // 2
        yield from self._send(key, bodies, first, half)
        yield from self._send(key, bodies, first + half, rows - half)

    def _refuses_everything(self, key: str, status: int) -> bool:
        """Whether a batch without any row is answered in the same way, so that rows are not to blame."""
        if self._answers.is_about_rows_alone(status):
            return False
        return self._post(f"{key}/none", b"[]").status_code == status

    def _post(self, key: str, body: bytes) -> httpx.Response:
        try:
            return self._client.post(self._url, content=body, headers={IDEMPOTENCY_KEY: key})
        except httpx.HTTPError as error:
            reason = str(error) or f"no answer within {self._timeout}"
            raise SinkError(f"{self._address} is away: {type(error).__name__}: {reason}.") from error


def _told(answer: httpx.Response) -> str:
    text = _shortened(answer.text)
    return f"{answer.status_code} {answer.reason_phrase}" + (f": {text}" if text else "")


def _shortened(text: str) -> str:
    return " ".join(text[:_TOLD].split())
