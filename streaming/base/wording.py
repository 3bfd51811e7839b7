"""Numbers, instants and texts from outside, as they stand in sentences."""

from __future__ import annotations

import re
from datetime import datetime

_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Characters that a terminal obeys and does not show: to move the cursor, change colours, write from right to left."""


def counted(number: int, one: str, many: str | None = None) -> str:
    """`1 row`, `2,000 rows`; `many` is the plural where it is not `one` with an `s`."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def told(instant: datetime | None) -> str:
    """`2026-01-05 10:00:00`, or `none`."""
    return "none" if instant is None else f"{instant:%Y-%m-%d %H:%M:%S}"


def shown(text: str) -> str:
    """A text from outside as a terminal may show it: what terminals obey is written as in Python, such as `\\x1b`."""
    return _OBEYED.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
