"""How a keyed function is computed, in words, and how far it is."""

from __future__ import annotations

from streaming.declare import STATE, Keyed
from streaming.lake import Lake
from streaming.log import head, require_log
from streaming.tables import delta
from streaming.views import Position


def explain(lake: Lake, keyed: Keyed) -> dict[str, str]:
    """By heading; the function's tables may be there or not.

    Raises:
        LogError: nothing has been ingested yet.
    """
    require_log(lake, keyed.of)
    return {
        "results": _results(keyed),
        "computed": _computed(keyed),
        "state": _state(lake, keyed),
        "late rows": _late(keyed),
        "errors": "go to the side output 'failed'" if keyed.on_error == "side" else "stop the step",
        "steps": "after each batch of the log" if keyed.every is None else f"at most every {keyed.every}",
        "position": _position(lake, keyed),
    }


def _results(keyed: Keyed) -> str:
    keys = f"per {', '.join(keyed.by)}" if keyed.by else "for one key in all"
    sides = f"; side outputs: {', '.join(keyed.sides)}" if keyed.sides else ""
    return f"what {keyed.fingerprint['function']} emits {keys} over {keyed.of.name}{sides}"


def _computed(keyed: Keyed) -> str:
    order = (
        "the order of the log" if keyed.order == "arrival" else "order of event time, once the clock has passed them"
    )
    return f"rows in {order}; each step folds the rows that are due onto the state, in one pass"


def _state(lake: Lake, keyed: Keyed) -> str:
    uri = lake.table(keyed, STATE)
    table = delta.open_table(uri)
    if table is None:
        return "none"
    forgets = (
        "kept until the function clears it" if keyed.idle is None else f"forgotten after {keyed.idle} without a row"
    )
    count = table.count()
    keys = f"{count:,} {'key' if count == 1 else 'keys'}"
    return f"{keys}, {delta.size(uri):,} bytes in {keyed.name}_{STATE}; {forgets}"


def _late(keyed: Keyed) -> str:
    if keyed.order == "arrival":
        return "come like all others; the function is told by key.late"
    return "are left out of the results; `late` shows them"


def _position(lake: Lake, keyed: Keyed) -> str:
    newest, at = head(lake, keyed.of), Position.of(delta.open_table(lake.table(keyed)))
    assert newest is not None
    watermark = "none" if at.watermark is None else f"{at.watermark:%Y-%m-%d %H:%M:%S}"
    generation = f"; built anew {at.generation} times" if at.generation else ""
    return f"batch {at.batch:,} of {newest.number:,}, watermark {watermark}{generation}"
