"""The files of a step: rows with their answers, rows without one, and rows that wait."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streaming.base import AT, BATCH, WRITTEN_AT, encoder
from streaming.declare import FAILED, PENDING, Enriched
from streaming.lookups.question import Answer
from streaming.lookups.schemas import (
    ANSWERED_AT,
    ASKED_AT,
    ATTEMPT,
    ATTEMPTS,
    CACHED,
    ERROR,
    REQUEST,
    STEP_COLUMN,
    VERSION,
)
from streaming.lookups.waiting import Waiting
from streaming.tables import TaskFile, TaskFiles


class StepFiles:
    """Writes the files of one step into the folders of the tables at `uris`, by suffix."""

    def __init__(
        self, enriched: Enriched, uris: dict[str, str], schemas: dict[str, pa.Schema], step: int, now: int
    ) -> None:
        self._enriched = enriched
        self._uris = uris
        self._schemas = schemas
        self._default = encoder(pa.struct(list(enriched.answer_schema)))(enriched.default)
        self._same = {VERSION: enriched.version, STEP_COLUMN: step, WRITTEN_AT: now}

    def answered(self, rows: pa.Table, answers: Sequence[Answer]) -> dict[str, list[TaskFile]]:
        """The rows of a step that wait no more, by the suffix of the table that takes them."""
        aside = [answer.kind is not None and self._enriched.on_failure == "side" for answer in answers]
        failures = [answer for answer, out in zip(answers, aside, strict=True) if out]
        others = [answer for answer, out in zip(answers, aside, strict=True) if not out]
        mask = pa.array(aside, pa.bool_())
        return {
            "": self._write("", rows.filter(pc.invert(mask)), others),
            FAILED: self._write(FAILED, rows.filter(mask), failures),
        }

    def pending(self, waiting: Waiting) -> list[TaskFile]:
        """All rows that wait."""
        if not len(waiting):
            return []
        questions = waiting.questions
        columns: dict[str, list[Any]] = {
            ASKED_AT: [each.asked_at for each in questions],
            # Before the attempts, as a call that fails meanwhile must not look like one that could not be asked.
            ERROR: [each.error for each in questions],
            ATTEMPTS: [each.attempts for each in questions],
            REQUEST: [each.key for each in questions],
        }
        files = TaskFiles(self._uris[PENDING], self._schemas[PENDING])
        for batch in self._table(PENDING, waiting.rows, columns).to_batches():
            files.write(batch)
        return files.close()

    def _write(self, suffix: str, rows: pa.Table, answers: Sequence[Answer]) -> list[TaskFile]:
        if not answers:
            return []
        columns: dict[str, list[Any]] = {
            ASKED_AT: [each.asked_at for each in answers],
            ANSWERED_AT: [each.answered_at for each in answers],
            **(self._failures(answers) if suffix == FAILED else self._answers(answers)),
        }
        files = TaskFiles(self._uris[suffix], self._schemas[suffix], (AT, BATCH, STEP_COLUMN))
        for day, of_day in _by_day(self._table(suffix, rows, columns)):
            for batch in of_day.to_batches():
                files.write(batch, day)
        return files.close()

    def _answers(self, answers: Sequence[Answer]) -> dict[str, list[Any]]:
        values = [self._values(each) for each in answers]
        return {
            **{name: [each.get(name) for each in values] for name in self._enriched.result},
            ATTEMPT: [each.attempt for each in answers],
            CACHED: [each.cached for each in answers],
            ERROR: [each.error for each in answers],
        }

    def _values(self, answer: Answer) -> Any:
        if answer.values is not None:
            return answer.values
        takes_default = answer.kind is None or self._enriched.on_failure == "default"
        return self._default if takes_default else {}

    @staticmethod
    def _failures(answers: Sequence[Answer]) -> dict[str, list[Any]]:
        return {
            "kind": [each.kind for each in answers],
            "error": [each.error for each in answers],
            "attempts": [each.attempt for each in answers],
        }

    def _table(self, suffix: str, rows: pa.Table, columns: dict[str, list[Any]]) -> pa.Table:
        def column(field: pa.Field) -> Any:
            if field.name in columns:
                return pa.array(columns[field.name], field.type)
            if field.name in self._same and suffix != PENDING:
                return pa.repeat(pa.scalar(self._same[field.name], field.type), rows.num_rows)
            return rows[field.name].cast(field.type)

        schema = self._schemas[suffix]
        return pa.table([column(field) for field in schema], schema=schema)


def _by_day(rows: pa.Table) -> Iterator[tuple[date, pa.Table]]:
    days = pc.cast(rows[AT], pa.date32(), safe=False)
    for day in pc.unique(days).to_pylist():
        yield day, rows.filter(pc.equal(days, day))
