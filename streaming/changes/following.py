"""The changes of what is current of an operator, as a stream follows them, revision by revision."""

from __future__ import annotations

from datetime import datetime
from functools import partial

import pyarrow.compute as pc
from deltalake import DeltaTable

from streaming.base import CLOCK, COPY, REVISION, SIGN, DeclarationError
from streaming.changes.looks import ChangePosition
from streaming.changes.publishing import first_revision
from streaming.declare import CHANGES, Operator
from streaming.lake import Lake
from streaming.sources import UnitTable, changes_of
from streaming.tables import delta


@changes_of.register
def _(of: Operator, lake: Lake) -> UnitTable:
    if not of.published:
        raise DeclarationError(
            f"Table({of.name!r}, what='current'): nothing corrects the results of {of.kind_name} {of.name!r}, so its "
            "first results are current.",
            "Leave what out.",
            operator=of.name,
            value="current",
        )
    return UnitTable(
        uri=lake.table(of, CHANGES),
        unit=REVISION,
        unit_name="revision",
        written="",
        at=of.times[0],
        order=(SIGN,),
        made_by=f"run `tidemark run {of.folder}` first, so that it has results",
        instants=False,
        generation=first_revision,
        sign=SIGN,
        copy="" if of.result_key else COPY,
        watermark=partial(_watermark, of),
    )


def _watermark(of: Operator, changes: DeltaTable, revision: int) -> datetime | None:
    """The time before which no result begins that is new after a revision; None where nobody knows.

    Whoever has the newest revision also knows looks since which found nothing.
    """
    newest = ChangePosition.of(changes)
    if revision >= newest.revision:
        return of.first_begin(newest.watermark)
    told = delta.contents(changes, [(REVISION, "=", revision)], [CLOCK])
    return of.first_begin(pc.max(told[CLOCK]).as_py()) if told.num_rows else None
