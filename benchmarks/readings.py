"""The input of the meters: lines of JSON, a few of them late or damaged on purpose, and what they must come to."""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path

_METERS = 20
_OUT_OF_ORDER_SECONDS = 8.0
_LATE, _DAMAGED = 0.03, 0.01
_LATE_BETWEEN_SECONDS = (20.0, 600.0)
WINDOW_SECONDS = 10


class Readings:
    """Makes readings, and counts what it has made without the platform.

    `windows` counts the valid readings of each meter and ten seconds since the epoch.
    """

    def __init__(self, seed: int) -> None:
        self.generated = 0
        self.damaged = 0
        self.windows: Counter[tuple[str, int]] = Counter()
        self._random = random.Random(seed)

    def lines(self, rows: int, now: datetime) -> list[str]:
        """So many readings around `now`, a line each."""
        self.generated += rows
        return [self._line(now) for _ in range(rows)]

    def _line(self, now: datetime) -> str:
        meter, at, damaged = self._drawn(now)
        value = self._random.random() * 9
        if damaged:
            self.damaged += 1
            return self._random.choice(
                (
                    "{\n",
                    f'{{"meter": "{meter}", "at": "?", "value": {value}}}\n',
                    f'{{"meter": "{meter}", "at": "{at.isoformat()}", "value": 9999}}\n',
                )
            )
        self._count(meter, at)
        return f'{{"meter": "{meter}", "at": "{at.isoformat()}", "value": {value}}}\n'

    def _drawn(self, now: datetime) -> tuple[str, datetime, bool]:
        """A meter, a time around `now`, and whether the line is to be damaged."""
        draw = self._random.random
        late = draw() < _LATE
        behind = self._random.uniform(*_LATE_BETWEEN_SECONDS) if late else draw() * _OUT_OF_ORDER_SECONDS
        return f"m{int(draw() * _METERS):02}", now - timedelta(seconds=behind), draw() < _DAMAGED

    def _count(self, meter: str, at: datetime) -> None:
        self.windows[meter, int(at.timestamp()) // WINDOW_SECONDS] += 1


def land(landing: Path, name: str, text: str) -> None:
    """A file of JSON lines that is there at once: written under a hidden name and renamed."""
    hidden = landing / f".{name}"
    hidden.write_text(text)
    hidden.replace(landing / f"{name}.json")


class LandedReadings(Readings):
    """Readings in files of a folder."""

    def __init__(self, landing: Path, seed: int) -> None:
        super().__init__(seed)
        self.landing = landing
        self.files = 0
        landing.mkdir(parents=True, exist_ok=True)

    def land(self, rows: int, now: datetime) -> None:
        """A file of `rows` readings around `now`."""
        land(self.landing, f"{self.files:06}", "".join(self.lines(rows, now)))
        self.files += 1
