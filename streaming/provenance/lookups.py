"""The row that a lookup was asked for, selected again, and the answer that it was given, as it is stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from streaming.base import AT, BATCH, ORIGIN, told
from streaming.declare import Enriched
from streaming.lookups import select_rows
from streaming.provenance.answer import Evidence, InputRow, Question, evidence_of
from streaming.provenance.log_rows import LogRows, as_input, frame_of, place_of, rows_at


@evidence_of.register
def _(operator: Enriched, question: Question) -> Evidence:
    (stream,), lake = operator.follows, question.lake
    found, files, version = rows_at(lake, stream, [place_of(row[BATCH], row[ORIGIN]) for row in question.stored])
    selected = select_rows(operator, frame_of(question, LogRows(stream, found, (), files, version)))
    answers = {place_of(row[BATCH], row[ORIGIN]): row for row in question.stored}
    again = tuple(
        {
            name: answers[place_of(row[BATCH], row[ORIGIN])][name] if name in operator.result else row[name]
            for name in operator.columns
        }
        for row in selected.toArrow().to_pylist()
    )
    names = ", ".join(operator.result)
    return Evidence(
        (*(as_input(stream, row, stream.columns) for row in found.to_pylist()), *_answers(operator, question)),
        again,
        notes=(f"{names} is what was answered, once, and is taken as it is stored: nobody can ask that again",),
        files=files,
        versions={lake.log(stream): version},
    )


def _answers(operator: Enriched, question: Question) -> Iterator[InputRow]:
    """The answers in force, as rows of the enrichment's own table."""
    for row in question.stored:
        yield InputRow(
            stream=operator.name,
            place=_how(row),
            origin={},
            batch=-1,
            values={name: row[name] for name in operator.result},
            event_time=row[AT],
            ingested_at=row["_answered_at"],
        )


def _how(row: Mapping[str, Any]) -> str:
    """When and how a row was asked for, in words."""
    asked = f"asked {told(row['_asked_at'])}" if row["_asked_at"] else "not asked"
    parts = [
        asked,
        "answer of an earlier row of its key" if row["_cached"] else f"attempt {row['_attempt']}",
        f"no answer: {row['_error']}" if row["_error"] else "",
        f"version {row['_version']} of the call",
    ]
    return ", ".join(filter(None, parts))
