"""The row that a lookup was asked for, selected again, and its answer, looked up again where that can be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from streaming.base import AT, BATCH, ORIGIN, DimensionError, encoder, told
from streaming.declare import Enriched
from streaming.lake import Lake
from streaming.lookups import DimensionLookup, select_rows
from streaming.provenance.answer import Evidence, InputRow, Question, Row, evidence_of
from streaming.provenance.log_rows import LogRows, as_input, frame_of, place_of, rows_at
from streaming.tables import FilesRead

_ERROR = "_error"


@evidence_of.register
def _(operator: Enriched, question: Question) -> Evidence:
    (stream,), lake = operator.follows, question.lake
    found, files, version = rows_at(lake, stream, [place_of(row[BATCH], row[ORIGIN]) for row in question.stored])
    selected = select_rows(operator, frame_of(question, LogRows(stream, found, (), files, version))).toArrow()
    stored = {place_of(row[BATCH], row[ORIGIN]): row for row in question.stored}
    in_order = [stored[place_of(row[BATCH], row[ORIGIN])] for row in selected.select([BATCH, ORIGIN]).to_pylist()]
    answers = _answered_again(operator, lake, selected, in_order)
    again = tuple(
        {name: answer[name] if name in operator.result else row[name] for name in operator.columns}
        for row, answer in zip(selected.to_pylist(), answers.rows, strict=True)
    )
    return Evidence(
        (*(as_input(stream, row, stream.columns) for row in found.to_pylist()), *_answers(operator, question)),
        again,
        notes=(f"{', '.join(operator.result)} is {answers.how}",),
        files=files + answers.files,
        versions={lake.log(stream): version},
    )


@dataclass(frozen=True)
class _Answers:
    """The answers to some rows, and how they were come by."""

    rows: Sequence[Row]
    how: str
    files: FilesRead = field(default_factory=FilesRead)


def _answered_again(operator: Enriched, lake: Lake, asked: pa.Table, stored: Sequence[Row]) -> _Answers:
    """The answers of the versions of a dimension that were read for the rows; those that are stored where it has none.

    What was given up was answered by nobody, and stays.
    """
    if not isinstance(operator.call, DimensionLookup):
        return _Answers(stored, "what was answered, once, and is taken as it is stored: nobody can ask that again")
    lookup = operator.call.in_lake(lake)
    kind = pa.struct(list(operator.answer_schema))
    answers, files = [*stored], FilesRead()
    read = [lookup.version if lookup.version_as is None else row[lookup.version_as] for row in stored]
    versions = [version for version in read if version is not None]
    if len(versions) < len(read):
        return _Answers(
            stored,
            f"taken as it is stored: nobody has written down which version of {lookup.place} it is from; "
            "name a column for that, version_as='...', or pin one, version=...",
        )
    for version in sorted({*versions}):
        places = [place for place, row in enumerate(stored) if versions[place] == version and row[_ERROR] is None]
        try:
            found, more = lookup.answers_of(version, asked.take(pa.array(places, pa.int64())))
        except DimensionError as error:
            return _Answers(
                stored, f"taken as it is stored: version {version} of {lookup.place} cannot be read any more ({error})"
            )
        files += more
        told_again = [encoder(kind)(operator.default if answer is None else answer) for answer in found]
        for place, answer in zip(places, pa.array(told_again, kind).to_pylist(), strict=True):
            answers[place] = answer
    of = ", ".join(map(str, sorted({*versions})))
    return _Answers(answers, f"looked up again in version {of} of {lookup.place}", files)


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
