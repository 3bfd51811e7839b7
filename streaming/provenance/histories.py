"""The revisions of a key of a history, and its intervals computed again from exactly these."""

from __future__ import annotations

from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streaming.base import ADDED, BATCH, ORIGIN, REASON, counted, literal
from streaming.declare import History
from streaming.log import batches_after, read_log, valid
from streaming.operators import Progress
from streaming.provenance.answer import Evidence, Question, Row, evidence_of
from streaming.provenance.changes import changes_of_group
from streaming.provenance.log_rows import as_input, frame_of, place_of, read_by_spark, rows_near
from streaming.revisions import identity_of_revision, intervals_again, refused_extracts, without_row
from streaming.tables import Between


@evidence_of.register
def _(operator: History, question: Question) -> Evidence:
    lake, stream, came = question.lake, operator.of, operator.of.revisions
    log = rows_near(lake, came, [question.key], Between())
    rows, through = log.valid.to_pylist(), Progress.as_read(lake, operator).batch
    batches = [] if stream.snapshots is None else batches_after(lake, came, -1)
    changed = [] if stream.snapshots is None and stream.forget is None else batches_after(lake, stream, -1)
    followed = [each for each in batches if each.number <= through]
    numbers, refused = {row[BATCH] for row in rows if row[BATCH] <= through}, refused_extracts(changed)
    gone = without_row(numbers - refused, followed, refused) if followed else []
    frame = frame_of(question, log).where(f"{BATCH} <= {through}")
    if followed:
        # When an extract was taken, all its rows tell together; one that lacks the key has no other.
        together = () if stream.snapshots is None or stream.snapshots.taken_at is None else numbers
        extracts = valid(read_log(question.spark(), lake, came)).where(F.col(BATCH).isin(*gone, *together))
        frame = frame.unionByName(extracts.where(~_is(question.key)), allowMissingColumns=True)
    changes = read_log(question.spark(), lake, stream)
    again = intervals_again(frame, operator, followed, changes, changed)
    recomputed = again.intervals.where(_is(question.key)).select(*(f"`{name}`" for name in operator.columns))
    # All other rows are in memory.
    beside = [lake.log(each) for each, reads in ((came, followed), (stream, stream.forget)) if reads]
    left = _reasons(frame.where(_is(question.key)), again.ignored)
    left |= {place_of(row[BATCH], row[ORIGIN]): "not followed yet" for row in rows if row[BATCH] > through}
    reasons = [left.get(place_of(row[BATCH], row[ORIGIN]), "") for row in rows]
    inputs = (
        as_input(came, row, came.columns, counts=not reason, reason=reason)
        for row, reason in zip(rows, reasons, strict=True)
    )
    lacks = f"{', '.join(map(str, gone))}, which {'has' if len(gone) == 1 else 'have'} no row of it"
    return Evidence(
        tuple(sorted(inputs, key=lambda row: row.batch)),
        tuple(recomputed.toArrow().to_pylist()),
        log.rejected,
        changes_of_group(lake, operator, question.key),
        (f"it is gone by {counted(len(gone), 'extract')}: batch {lacks}",) if gone else (),
        files=log.files + read_by_spark((recomputed, again.ignored), beside),
        versions={lake.log(came): log.version},
    )


def _is(key: Row) -> Column:
    """True for the rows of a key."""
    values = ((name, literal(value) if hasattr(value, "hour") else F.lit(value)) for name, value in key.items())
    return reduce(and_, (F.col(f"`{name}`").eqNullSafe(value) for name, value in values), F.lit(True))


def _reasons(came: DataFrame, ignored: DataFrame) -> dict[tuple[int, str], str]:
    """The places in their log of those rows that are ignored, by their identity as `_added`, each with the reason."""
    rows = came.withColumn(ADDED, identity_of_revision()).join(ignored, ADDED).select(BATCH, ORIGIN, REASON)
    return {place_of(row[BATCH], row[ORIGIN]): row[REASON] for row in rows.toArrow().to_pylist()}
