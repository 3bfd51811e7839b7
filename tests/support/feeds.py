"""Input as data: batches of payloads, landed the way a careful source system lands them."""

from __future__ import annotations

from typing import Any

from tests.support.instants import at, ms
from tidemark.testing import Payload as Payload
from tidemark.testing import land as land
from tidemark.testing import land_all as land_all


def readings(timeline: str) -> list[dict[str, Any]]:
    """Sensor readings in the notation `a@3.5=20, b@4`: key, seconds after T0, temperature (null if not given)."""
    rows = []
    for entry in timeline.split(","):
        key, _, rest = entry.strip().partition("@")
        seconds, _, value = rest.partition("=")
        rows.append({"id": key, "timestamp": ms(at(float(seconds))), "temperature": float(value) if value else None})
    return rows
