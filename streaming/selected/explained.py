"""How a selection is computed, in words, what its filters did, and how far it is."""

from __future__ import annotations

from streaming.base import counted
from streaming.declare import FAILED, Selected
from streaming.lake import Lake
from streaming.log import head, require_log
from streaming.operators import Reached, built_anew
from streaming.tables import delta


def explain(lake: Lake, selected: Selected) -> dict[str, str]:
    """By heading; the selection's tables may be there or not.

    Raises:
        LogError: nothing has been ingested yet.
    """
    for stream in selected.reads:
        require_log(lake, stream)
    streams = " and ".join(stream.name for stream in selected.reads)
    function = "" if selected.function is None else f", then {selected.function.name}"
    tables = {
        to or "results": f"{'; '.join(side.fingerprint)}{'' if to else function}. {_counts(lake, selected, to)}"
        for to, side in selected.outputs.items()
    }
    return {
        **tables,
        "errors": f"go to the side output {FAILED!r}" if selected.diverts else "pause the selection",
        "computed": f"valid rows of {streams} one by one, late or not; a step writes all outputs in one pass",
        "steps": "after each batch" if selected.every is None else f"at most every {selected.every}",
        "position": _position(lake, selected),
    }


def _counts(lake: Lake, selected: Selected, to: str) -> str:
    counts = Reached.of(selected, delta.open_table(lake.table(selected, to))).counts
    return f"{counted(counts.rows_in, 'row')} in, {counts.kept:,} kept, {counts.removed:,} removed"


def _position(lake: Lake, selected: Selected) -> str:
    at = Reached.of(selected, delta.open_table(lake.table(selected)))
    places = []
    for stream in selected.reads:
        newest = head(lake, stream)
        assert newest is not None
        place = f"batch {at.through[stream.name]:,} of {newest.number:,}"
        places.append(place if len(selected.reads) == 1 else f"{place} of {stream.name}")
    return f"{', '.join(places)}{built_anew(at.generation)}"
