"""What the tables of a delivery record of it, so that whose they are is known when it is gone."""

from __future__ import annotations

import json

from streaming.declare import Delivery
from streaming.operators import DECLARATION


def recorded_by(delivery: Delivery) -> dict[str, str]:
    """The properties of every table of the delivery."""
    recorded = {
        "operator": delivery.name,
        "kind": "Delivery",
        "makes": dict(delivery.fingerprint),
        "selects": dict(delivery.selected),
    }
    return {DECLARATION: json.dumps(recorded)}
