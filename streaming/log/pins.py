"""How far control streams were when a batch was read: the commit of the batch says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streaming.base import FrozenMapping


@dataclass(frozen=True)
class Pin:
    """How far the log of a control stream was: its `newest` batch, -1 where it had none yet.

    `first` is what the first batch with a pin of that stream said, which holds for all batches before it as well.
    """

    first: int
    newest: int


NOTHING_PINNED: Mapping[str, int] = FrozenMapping({})
"""What a stream pins that no operator needs control streams for."""


def next_pins(before: Mapping[str, Pin], newest: Mapping[str, int]) -> dict[str, Pin]:
    """The pins of the next batch, by control stream.

    What nobody asks for any more is carried on, so that each later batch knows what the first one said.
    """
    pins = {
        name: Pin(before[name].first, max(number, before[name].newest)) if name in before else Pin(number, number)
        for name, number in newest.items()
    }
    return {**before, **pins}


def pins_to_json(pins: Mapping[str, Pin]) -> dict[str, list[int]]:
    """The pins as JSON values."""
    return {name: [pin.first, pin.newest] for name, pin in pins.items()}


def pins_from_json(value: Mapping[str, list[int]]) -> dict[str, Pin]:
    """The inverse of `pins_to_json`."""
    return {name: Pin(first, newest) for name, (first, newest) in value.items()}
