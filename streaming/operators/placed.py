"""The rows of an operator that are numbered as its steps are, as other streams follow them."""

from __future__ import annotations

from streaming.base import AT, BATCH, ORIGIN, WRITTEN_AT
from streaming.declare import Operator
from streaming.lake import Lake
from streaming.operators.progress import generation_of
from streaming.sources import PlacedRows, check_has_side


def rows_by_batch(of: Operator, lake: Lake, side: str) -> PlacedRows:
    """The rows of a table of the operator, by their `_batch`.

    Raises:
        DeclarationError: it has no such table.
    """
    check_has_side(of.name, of.kind_name, side, (table.suffix for table in of.tables))
    return PlacedRows(
        uri=lake.table(of, side),
        unit=BATCH,
        # Over several logs a step has a number of its own; over one it bears that of its newest batch.
        unit_name="batch" if len(of.reads) == 1 else "step",
        written=WRITTEN_AT,
        at=AT,
        made_by=f"run `tidemark run {of.folder}` first, so that it has rows",
        order=(ORIGIN,),
        instants=False,
        generation=generation_of,
    )
