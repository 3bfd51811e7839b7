"""A question that is asked for one row, or for all rows of a key, and its answer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Literal

from streaming.declare import Enriched


@dataclass(frozen=True)
class Answer:
    """The outcome of a question: `values` of the result's columns, None where nothing was found, or why there is none.

    `kind` and `error` tell of a failure, which is `final` where no further attempt follows. Instants are in
    microseconds; of an answer from the cache they are those of the call that gave it.
    """

    values: Mapping[str, Any] | None
    attempt: int
    asked_at: int
    answered_at: int
    kind: Literal["timeout", "error"] | None = None
    error: str | None = None
    final: bool = True
    cached: bool = False


@dataclass
class Question:
    """`columns` and their values in `row` are what the call is handed; `key` is the idempotency key.

    `identity` is what rows that share the question have in common. `attempts`, `asked_at` and `error` tell how it
    stands while it waits. One that has an error before its first attempt cannot be asked.
    """

    identity: Hashable
    columns: tuple[str, ...]
    row: tuple[Any, ...]
    key: str
    attempts: int = 0
    asked_at: int | None = None
    error: str | None = None
    future: Future[Answer] | None = None

    @property
    def answer(self) -> Answer | None:
        """The final answer; None while it waits."""
        ended = self._ended
        return ended if ended is not None and ended.final else None

    @property
    def is_to_repeat(self) -> bool:
        """True if the last attempt failed, and the next one has not begun."""
        ended = self._ended
        return ended is not None and not ended.final

    @property
    def cannot_be_asked(self) -> bool:
        """True if there is nothing to hand to a call."""
        return self.error is not None and self.attempts == 0

    @property
    def _ended(self) -> Answer | None:
        return self.future.result() if self.future is not None and self.future.done() else None

    def fail(self, now: int) -> None:
        """Let the error be its answer, without asking."""
        self.asked_at = now
        self.settle(Answer(None, self.attempts, now, now, "error", self.error))

    def settle(self, answer: Answer) -> None:
        """Give it an answer without asking."""
        self.future = Future()
        self.future.set_result(answer)


def request_key(enriched: Enriched, batch: int, origin: str) -> str:
    """The idempotency key of the row of a batch with an origin: the same in every process, and nobody else's."""
    place = json.dumps([enriched.of.name, enriched.name, batch, origin])
    return hashlib.sha256(place.encode()).hexdigest()[:32]
