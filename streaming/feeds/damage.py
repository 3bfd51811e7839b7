"""Damages a share of the lines a source system sends, reproducibly, so that there is something to reject.

Whether and how a line is damaged depends on the key of its event alone, never on the lines around it: a range
fed in two parts holds the same damaged lines as one fed whole, and a greater share adds to a smaller one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any


class Damage(StrEnum):
    """The ways in which a line can be damaged."""

    CUT_SHORT = "cut short"
    WRONG_TYPE = "wrong type"
    IMPOSSIBLE_DELAY = "impossible delay"
    TIME_IN_THE_FUTURE = "time in the future"


IMPOSSIBLE_DELAY_MINUTES = 99_999.0
FUTURE_YEAR = 2100
_KINDS = tuple(Damage)


def damage_of(key: str, share: float) -> Damage | None:
    """Return how the event with this key is damaged when ``share`` (0 to 1) of all are, None if it is not."""
    digest = hashlib.blake2b(key.encode(), digest_size=9).digest()
    if int.from_bytes(digest[:8]) >= share * 2**64:
        return None
    return _KINDS[digest[8] % len(_KINDS)]


def damaged_line(event: Mapping[str, Any], damage: Damage) -> str:
    """Return the JSON line of an event (with ``dep_delay`` and ``sched_dep``) that has this damage."""
    if damage is Damage.CUT_SHORT:
        line = json.dumps(event)
        return line[: len(line) * 2 // 3]
    if damage is Damage.WRONG_TYPE:
        return json.dumps({**event, "dep_delay": "unknown"})
    if damage is Damage.IMPOSSIBLE_DELAY:
        return json.dumps({**event, "dep_delay": IMPOSSIBLE_DELAY_MINUTES})
    return json.dumps({**event, "sched_dep": f"{FUTURE_YEAR}{event['sched_dep'][4:]}"})
