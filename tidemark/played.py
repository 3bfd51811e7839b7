"""The outcome of a keyed function that was played: what it emitted, and its state and timers at each moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True)
class Moment:
    """One moment of a key: what happened at `at`, what was emitted, and what was kept of it afterwards."""

    key: tuple[Any, ...]
    at: datetime
    what: str
    emitted: tuple[tuple[Any, ...], ...]
    state: Mapping[str, Any]
    timers: Mapping[str, datetime]

    def __str__(self) -> str:
        state = ", ".join(f"{name}={value!r}" for name, value in self.state.items() if value is not None)
        timers = ", ".join(f"{name} at {at:%H:%M:%S.%f}" for name, at in self.timers.items())
        parts = (*(f"emits {row}" for row in self.emitted), f"state {state or 'empty'}", timers and f"timers {timers}")
        return f"{self.at:%H:%M:%S.%f} {self.key} {self.what}: {'; '.join(filter(None, parts))}"


@dataclass(frozen=True)
class Played:
    """The outcome of a play: `outputs` by their tables' suffix, `late` rows (order `event` only), state and timers.

    `current` are the outputs once late rows are corrected, by time: the same as `outputs` where none are (`idle`).
    Rows of an output are tuples in the order in which they were emitted: the key, the time, the values. `str` tells the
    `moments` one per line.
    """

    outputs: Mapping[str, list[tuple[Any, ...]]]
    current: Mapping[str, list[tuple[Any, ...]]]
    late: list[Mapping[str, Any]]
    state: Mapping[tuple[Any, ...], Mapping[str, Any]]
    timers: Mapping[tuple[Any, ...], Mapping[str, datetime]]
    moments: list[Moment]
    watermark: datetime | None

    @property
    def results(self) -> list[tuple[Any, ...]]:
        """The rows of the function's own table."""
        return self.outputs[""]

    def __str__(self) -> str:
        return "\n".join(map(str, self.moments))
