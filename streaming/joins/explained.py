"""How a join is computed, in words, and how far it is."""

from __future__ import annotations

from streaming.base import told
from streaming.declare import FAILED, UNMATCHED, Joined
from streaming.lake import Lake
from streaming.log import head, require_log
from streaming.operators import Reached, built_anew
from streaming.tables import delta


def explain(lake: Lake, joined: Joined) -> dict[str, str]:
    """By heading; the join's tables may be there or not.

    Raises:
        LogError: nothing has been ingested yet.
    """
    for stream in joined.reads:
        require_log(lake, stream)
    return {
        "results": _results(joined),
        "computed": "new left rows with all right ones, and old left rows with new right ones; nothing is kept, and of "
        "the logs only files near the event times of new rows are read",
        "without a pair": _unmatched(joined),
        "late rows": "join like all others" if joined.late == "join" else "are left out; `late` shows them",
        "errors": f"go to the side output {FAILED!r}" if joined.diverts else "pause the join",
        "steps": "after each batch of either log" if joined.every is None else f"at most every {joined.every}",
        "position": _position(lake, joined),
    }


def _results(joined: Joined) -> str:
    lower, upper = joined.between
    keys = " and ".join(f"equal {left}" if left == right else f"{left} equal to {right}" for left, right in joined.keys)
    where = "" if joined.where is None else f" where {joined.where}"
    streams = f"{joined.left.name} and {joined.right.name}"
    return f"pairs of {streams} with {keys}, the latter from {lower} to {upper} later{where}"


def _unmatched(joined: Joined) -> str:
    if not joined.outer_sides:
        return "rows tell nothing"
    rows = " and ".join(f"{side} rows" for side in joined.outer_sides)
    table = joined.table_name(UNMATCHED)
    return f"{rows} are told of in {table} once both clocks have passed their last possible partner"


def _position(lake: Lake, joined: Joined) -> str:
    at = Reached.of(joined, delta.open_table(lake.table(joined)))
    places = []
    for stream in joined.reads:
        newest = head(lake, stream)
        assert newest is not None
        places.append(f"batch {at.through[stream.name]:,} of {newest.number:,} of {stream.name}")
    return f"{', '.join(places)}, joint watermark {told(at.watermark)}{built_anew(at.generation)}"
