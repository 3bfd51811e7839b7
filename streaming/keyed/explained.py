"""How a keyed function is computed, in words, and how far it is."""

from __future__ import annotations

from streaming.base import counted, told
from streaming.declare import STATE, Keyed, Pinned
from streaming.keyed.migration import migrations_of
from streaming.keyed.reached import Reached
from streaming.lake import Lake
from streaming.log import head, require_log
from streaming.operators import built_anew
from streaming.tables import delta


def explain(lake: Lake, keyed: Keyed) -> dict[str, str]:
    """By heading; the function's tables may be there or not.

    Raises:
        LogError: nothing has been ingested yet.
    """
    for stream in keyed.streams:
        require_log(lake, stream)
    return {
        "results": _results(keyed),
        "computed": _computed(keyed),
        **({} if keyed.rules is None else {"rules": _rules(keyed.rules)}),
        "state": _state(lake, keyed),
        **({"migrated": ", ".join(migrated)} if (migrated := migrations_of(lake, keyed)) else {}),
        "late rows": _late(keyed),
        "errors": "go to the side output 'failed'" if keyed.diverts else "pause the function",
        "steps": "after each batch of a log" if keyed.every is None else f"at most every {keyed.every}",
        "position": _position(lake, keyed),
    }


def _results(keyed: Keyed) -> str:
    names = " and ".join(stream.name for stream in keyed.streams)
    keys = f"per {', '.join(keyed.by)}" if keyed.by else "for one key in all"
    sides = f"; side outputs: {', '.join(keyed.sides)}" if keyed.sides else ""
    return f"what {keyed.fingerprint['function']} emits {keys} over {names}{sides}"


def _computed(keyed: Keyed) -> str:
    order = (
        "the order of the log" if keyed.order == "arrival" else "order of event time, once the clock has passed them"
    )
    if len(keyed.streams) > 1:
        order = "order of event time, once the clocks of all streams have passed them"
    return f"rows in {order}; each step folds the rows that are due onto the state, in one pass"


def _rules(pinned: Pinned) -> str:
    return f"{pinned.fingerprint}; each batch says how far they were, and its rows see those"


def _state(lake: Lake, keyed: Keyed) -> str:
    uri = lake.table(keyed, STATE)
    table = delta.open_table(uri)
    if table is None:
        return "none"
    forgets = (
        "kept until the function clears it" if keyed.idle is None else f"forgotten after {keyed.idle} without a row"
    )
    return f"{counted(table.count(), 'key')}, {delta.size(uri):,} bytes in {keyed.name}_{STATE}; {forgets}"


def _late(keyed: Keyed) -> str:
    if keyed.order == "arrival":
        return "come like all others; the function is told by key.late"
    if not keyed.corrected:
        return "are left out of the results; `late` shows them. With idle they would be corrected"
    return "are left out of the first results; the activity sessions that have some wait for the scheduled correction"


def _position(lake: Lake, keyed: Keyed) -> str:
    at = Reached.of(keyed, delta.open_table(lake.table(keyed)))
    newest = {stream.name: batch.number for stream in keyed.streams if (batch := head(lake, stream)) is not None}
    several = len(at.through) > 1
    places = [
        f"batch {number:,} of {newest.get(name, -1):,}" + (f" of {name}" if several else "")
        for name, number in at.through.items()
    ]
    return f"{', '.join(places)}, watermark {told(at.watermark)}{built_anew(at.generation)}"
