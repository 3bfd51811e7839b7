"""The rows that wait for answers, in the order of the log, each with its question."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streaming.base import BATCH, ORIGIN, python_values
from streaming.declare import Enriched
from streaming.lookups.question import Question, request_key

RowPlace = tuple[int, str]
"""The batch of a row, and its origin as text: no two rows have the same."""


class Waiting:
    """Rows as they were selected, and the questions that they wait for: rows of one key share one."""

    def __init__(self, enriched: Enriched, schema: pa.Schema) -> None:
        self.rows: pa.Table = schema.empty_table()
        self.questions: list[Question] = []
        self._enriched = enriched
        self._asked = enriched.key or tuple(enriched.types)

    def __len__(self) -> int:
        return len(self.questions)

    @property
    def unanswered(self) -> list[Question]:
        """Each question that has no answer yet, once."""
        return list({id(each): each for each in self.questions if each.answer is None}.values())

    def add(
        self, rows: pa.Table, keys: Sequence[str] | None = None, errors: Sequence[str | None] | None = None
    ) -> list[Question]:
        """Let further rows wait; returns the questions that are new.

        `keys` are those with which they were asked. `errors` say of each row why it cannot be asked for, or are None:
        such a row shares no question.
        """
        open_ = {each.identity: each for each in self.unanswered} if self._enriched.key else {}
        columns = [python_values(rows[name]) for name in self._asked]
        new: list[Question] = []
        rows = rows.cast(self.rows.schema)
        for number, (place, values) in enumerate(zip(places_of(rows), zip(*columns, strict=True), strict=True)):
            error = None if errors is None else errors[number]
            shares = self._enriched.key and error is None
            identity = values if shares else place
            question = open_.get(identity) if shares else None
            if question is None:
                key = request_key(self._enriched, *place) if keys is None else keys[number]
                question = Question(identity, self._asked, values, key, error=error)
                new.append(question)
                if shares:
                    open_[identity] = question
            self.questions.append(question)
        self.rows = pa.concat_tables([self.rows, rows])
        return new

    def take_answered(self) -> tuple[pa.Table, list[Question]]:
        """Those rows that may come out now, which wait no more: in the order `arrival` none behind one that waits."""
        answered = [each.answer is not None for each in self.questions]
        if self._enriched.order == "arrival" and False in answered:
            first = answered.index(False)
            answered[first:] = [False] * (len(answered) - first)
        return self._take(answered)

    def drop(self, is_done: Callable[[RowPlace], bool]) -> None:
        """Let the rows at some places wait no more."""
        self._take([is_done(place) for place in places_of(self.rows)])

    def _take(self, wanted: Sequence[bool]) -> tuple[pa.Table, list[Question]]:
        mask = pa.array(wanted, pa.bool_())
        taken = [question for question, out in zip(self.questions, wanted, strict=True) if out]
        rows = self.rows.filter(mask)
        self.questions = [question for question, out in zip(self.questions, wanted, strict=True) if not out]
        self.rows = self.rows.filter(pc.invert(mask)).combine_chunks()
        return rows, taken


def places_of(rows: pa.Table) -> list[RowPlace]:
    """Where each row is from."""
    origins = rows[ORIGIN].to_pylist()
    return list(zip(rows[BATCH].to_pylist(), map(_text, origins), strict=True))


def _text(origin: Any) -> str:
    return json.dumps(origin, sort_keys=True, default=str)
