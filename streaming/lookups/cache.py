"""Answers that are kept for a while, by key."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import replace

from streaming.lookups.question import Answer

_AT_MOST = 100_000


class Cache:
    """Answers are good for `kept_for` microseconds; the ones that were used least lately make room for others."""

    def __init__(self, kept_for: int, most: int = _AT_MOST) -> None:
        self._kept_for = kept_for
        self._most = most
        self._answers: OrderedDict[Hashable, Answer] = OrderedDict()

    def get(self, identity: Hashable, now: int) -> Answer | None:
        """The answer, as one from the cache; None where there is none that is good still."""
        answer = self._answers.get(identity)
        if answer is None:
            return None
        if now - answer.answered_at >= self._kept_for:
            del self._answers[identity]
            return None
        self._answers.move_to_end(identity)
        return replace(answer, cached=True)

    def put(self, identity: Hashable, answer: Answer) -> None:
        """Keep an answer; a failure is none."""
        if answer.kind is not None:
            return
        self._answers[identity] = answer
        self._answers.move_to_end(identity)
        if len(self._answers) > self._most:
            self._answers.popitem(last=False)
