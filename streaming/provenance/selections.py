"""The row of a log that a selected row is made of, and what is selected of it again."""

from __future__ import annotations

from streaming.base import BATCH, ORIGIN, is_same
from streaming.declare import Selected
from streaming.provenance.answer import Evidence, Question, Row, evidence_of
from streaming.provenance.log_rows import LogRows, as_input, frame_of, place_of, rows_at
from streaming.selected import selected_of


@evidence_of.register
def _(operator: Selected, question: Question) -> Evidence:
    if len(operator.reads) > 1 or operator.signed:
        return Evidence((), None, why_not="its rows do not tell in which batch of which log they were")
    (stream,), lake = operator.reads, question.lake
    places = [place_of(row[BATCH], row[ORIGIN]) for row in question.stored]
    found, files, version = rows_at(lake, stream, places)
    inputs = tuple(as_input(stream, row, stream.columns) for row in found.to_pylist())
    evidence = Evidence(inputs, None, files=files, versions={lake.log(stream): version})
    if operator.function is not None:
        return evidence.without("its function is called in steps alone; `tidemark audit` calls it again")
    rows = frame_of(question, LogRows(stream, found, (), files, version))
    selected = selected_of(operator, {stream.name: rows}).select(*(f"`{name}`" for name in operator.columns))
    again: list[Row] = selected.toArrow().to_pylist()
    # Of a row that becomes several, those that are meant.
    key = question.key
    return evidence.recomputed_as(tuple(row for row in again if all(is_same(row[name], key[name]) for name in key)))
