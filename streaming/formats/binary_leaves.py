"""Single values of binary formats: what they are in words, and how those that a column cannot keep are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from streaming.formats.json_text import cut
from streaming.formats.leaves import FIRST_DAY, LAST_DAY
from streaming.formats.nested import Wrong

Read = Callable[[Any], Any]
"""Makes of a value what Arrow takes for its column, or raises `Wrong`."""

INT, BIGINT = "a whole number within int", "a whole number within bigint"
INSTANT, DATE, TEXT = "an instant of the years 1 to 9999", "a date of the years 1 to 9999", "text in UTF-8"

_BYTES_SHOWN = 30


def missing() -> Wrong:
    """The reason against a value that must be there, and is not."""
    return Wrong("required", "", "is missing")


def mistyped(words: str, value: Any, written: str | None = None) -> Wrong:
    """The reason against a value that is not what the `words` say, and was perhaps `written` as another type."""
    return Wrong("type", "", f"is not {words}, got {shown(value)}{f' of type {written}' if written else ''}")


def shown(value: Any) -> str:
    """The first characters of a value as JSON, of bytes in hexadecimal digits, for a reason."""
    if isinstance(value, (bytes, Decimal)):
        return cut(_plain(value))
    return cut(json.dumps(value, ensure_ascii=False, default=_plain, separators=(",", ":")))


def whole(low: int, high: int, words: str) -> Read:
    """Takes whole numbers from `low` to `high`, both included."""

    def read(value: Any) -> Any:
        if low <= value <= high:
            return value
        raise mistyped(words, value)

    return read


INT_OF = whole(-(2**31), 2**31 - 1, INT)
BIGINT_OF = whole(-(2**63), 2**63 - 1, BIGINT)
DATE_OF = whole(FIRST_DAY, LAST_DAY, DATE)


def _plain(value: bytes | Decimal) -> str:
    return f"0x{value[:_BYTES_SHOWN].hex()}" if isinstance(value, bytes) else f"{value:f}"
