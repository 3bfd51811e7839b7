"""How a window join or a co-group is computed, in words, and how far it is."""

from __future__ import annotations

from streaming.base import told
from streaming.declare import FAILED, STATE, CoGrouped, TwoSided, described
from streaming.lake import Lake
from streaming.log import require_log
from streaming.operators import Reached, built_anew
from streaming.tables import delta


def explain(lake: Lake, operator: TwoSided) -> dict[str, str]:
    """By heading; the tables may be there or not.

    Raises:
        LogError: one of its streams has no log yet.
    """
    for stream in operator.reads:
        require_log(lake, stream)
    state = delta.open_table(lake.table(operator, STATE)) if operator.window.merging else None
    keys = ", ".join(ours if ours == theirs else f"{ours} = {theirs}" for ours, theirs in operator.sides_on.items())
    what = f"what {described(operator.function)} gives" if isinstance(operator, CoGrouped) else "pairs"
    waits = "they wait for the correction of their window's day"
    return {
        "results": f"{what} of {operator.left.name} (left) and {operator.right.name} (right) by {keys} and window, "
        f"{operator.window.fingerprint}",
        "computed": "open sessions are kept in a table, with their rows; each step merges its rows into them"
        if operator.window.merging
        else "when the clocks of both logs have passed the end of a window, its rows are read from the logs",
        "state": "none"
        if state is None
        else f"{delta.size(lake.table(operator, STATE)):,} bytes in {operator.table_name(STATE)}",
        "late rows": "are dropped from the results; they stay in the logs" if operator.late == "drop" else waits,
        "errors": f"go to the side output {FAILED!r}" if operator.diverts else f"pause the {operator.kind_name}",
        "steps": "after each batch of either log" if operator.every is None else f"at most every {operator.every}",
        "position": _position(Reached.now(lake, operator), Reached.at_heads(lake, operator)),
    }


def _position(at: Reached, heads: Reached) -> str:
    places = []
    for name, number in at.through.items():
        clock = told(at.watermarks[name])
        places.append(f"batch {number:,} of {heads.through[name]:,} of {name}, watermark {clock}")
    return f"{'; '.join(places)}{built_anew(at.generation)}"
