"""Steps that the demos share: which flights they feed, and how they tell what they do."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date

from rich.console import Console
from rich.text import Text

FIRST_DAY, DAYS, DIRTY = date(2013, 1, 1), 7, 0.005


@contextmanager
def step(console: Console, seconds: dict[str, float], name: str, what: str) -> Iterator[None]:
    """Say what begins, and how long it took; `seconds` adds that up, by step."""
    console.print(Text.assemble((name, "bold"), f": {what}"))
    started = time.monotonic()
    yield
    took = time.monotonic() - started
    seconds[name] = seconds.get(name, 0.0) + took
    console.print(f"  done in {took:.0f} s")
