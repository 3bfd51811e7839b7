"""The revisions of a key of a history, and its intervals computed again from exactly these."""

from __future__ import annotations

from streaming.base import BATCH
from streaming.declare import History
from streaming.operators import Progress
from streaming.provenance.answer import Evidence, Question, evidence_of
from streaming.provenance.changes import changes_of_group
from streaming.provenance.groups import group_columns
from streaming.provenance.log_rows import as_input, frame_of, rows_near
from streaming.revisions import intervals_by_revisions
from streaming.tables import Between


@group_columns.register
def _(operator: History) -> tuple[str, ...]:
    return operator.of.key


@evidence_of.register
def _(operator: History, question: Question) -> Evidence:
    lake, came = question.lake, operator.of.revisions
    rows = rows_near(lake, came, [question.key], Between())
    through = Progress.as_read(lake, operator).batch
    is_followed = [batch <= through for batch in rows.valid[BATCH].to_pylist()]
    inputs = tuple(
        as_input(came, row, came.columns, counts=counts, reason="" if counts else "not followed yet")
        for row, counts in zip(rows.valid.to_pylist(), is_followed, strict=True)
    )
    evidence = Evidence(
        tuple(sorted(inputs, key=lambda row: row.batch)),
        None,
        rows.rejected,
        changes_of_group(lake, operator, question.key),
        files=rows.files,
        versions={lake.log(came): rows.version},
    )
    if operator.of.snapshots is not None or operator.of.forget is not None:
        return evidence.without("extracts and what is forgotten tell more than the rows of one key: `tidemark audit`")
    frame = frame_of(question, rows).where(f"{BATCH} <= {through}")
    intervals = intervals_by_revisions(frame, operator).select(*(f"`{name}`" for name in operator.columns))
    return evidence.recomputed_as(tuple(intervals.toArrow().to_pylist()))
