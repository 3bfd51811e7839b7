"""The row that a lookup was asked for; what was answered is kept in the table of its results alone."""

from __future__ import annotations

from streaming.base import BATCH, ORIGIN
from streaming.declare import Enriched
from streaming.provenance.answer import Evidence, Question, evidence_of
from streaming.provenance.log_rows import as_input, place_of, rows_at


@evidence_of.register
def _(operator: Enriched, question: Question) -> Evidence:
    (stream,), lake = operator.follows, question.lake
    found, files, version = rows_at(lake, stream, [place_of(row[BATCH], row[ORIGIN]) for row in question.stored])
    return Evidence(
        tuple(as_input(stream, row, stream.columns) for row in found.to_pylist()),
        None,
        why_not="what was answered is in its table alone",
        files=files,
        versions={lake.log(stream): version},
    )
