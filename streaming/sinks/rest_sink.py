"""One batch to an HTTP API: in one request, or in smaller ones where rows of it are refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import httpx

from streaming.base import SinkError, interval, retry_after
from streaming.sinks.encoding import json_objects
from streaming.sinks.sink import NumberedBatch, PutAside, RefusedRow, Sink

IDEMPOTENCY_KEY = "Idempotency-Key"
"""The header that names a request: a server that honours it takes each row once."""

_REFUSED = (httpx.codes.BAD_REQUEST, httpx.codes.REQUEST_ENTITY_TOO_LARGE, httpx.codes.UNPROCESSABLE_ENTITY)
_TOLD = 500


class RestSink(Sink):
    """Remembers nothing of what it has sent: the receiver tells batches apart by their keys.

    `address` is how errors call the `url`; `timeout` is an interval.
    """

    def __init__(self, url: str, address: str, headers: Mapping[str, str], timeout: str) -> None:
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
        put_aside(list(self._send(batch.key, bodies, 0, len(bodies))))

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
        if answer.is_success:
            return
        if answer.status_code not in _REFUSED:
            raise SinkError(f"{self._address} answers {_told(answer)}", retry_after(answer.headers))
        if rows == 1:
            yield RefusedRow(first, _told(answer))
            return
        half = rows // 2
        yield from self._send(key, bodies, first, half)
        yield from self._send(key, bodies, first + half, rows - half)

    def _post(self, key: str, body: bytes) -> httpx.Response:
        try:
            return self._client.post(self._url, content=body, headers={IDEMPOTENCY_KEY: key})
        except httpx.HTTPError as error:
            reason = str(error) or f"no answer within {self._timeout}"
            raise SinkError(f"{self._address} is away: {type(error).__name__}: {reason}.") from error


def _told(answer: httpx.Response) -> str:
    text = " ".join(answer.text[:_TOLD].split())
    return f"{answer.status_code} {answer.reason_phrase}" + (f": {text}" if text else "")
