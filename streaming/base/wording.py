"""Numbers and instants in sentences."""

from __future__ import annotations

from datetime import datetime


def counted(number: int, one: str, many: str | None = None) -> str:
    """`1 row`, `2,000 rows`; `many` is the plural where it is not `one` with an `s`."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def told(instant: datetime | None) -> str:
    """`2026-01-05 10:00:00`, or `none`."""
    return "none" if instant is None else f"{instant:%Y-%m-%d %H:%M:%S}"
