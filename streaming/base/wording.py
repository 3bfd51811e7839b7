"""Numbers, instants, errors of users and texts from outside, as they stand in sentences."""

from __future__ import annotations

import re
import sys
import sysconfig
import traceback
from datetime import datetime
from types import TracebackType

_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Characters that a terminal obeys and does not show: to move the cursor, change colours, write from right to left."""
_OF_OTHERS = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def counted(number: int, one: str, many: str | None = None) -> str:
    """`1 row`, `2,000 rows`; `many` is the plural where it is not `one` with an `s`."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def told(instant: datetime | None) -> str:
    """`2026-01-05 10:00:00`, or `none`."""
    return "none" if instant is None else f"{instant:%Y-%m-%d %H:%M:%S}"


def shown(text: str) -> str:
    """A text from outside as a terminal may show it: what terminals obey is written as in Python, such as `\\x1b`."""
    return _OBEYED.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def raised(error: BaseException) -> str:
    """`ValueError: no tariff (prices.py, line 4, in price: raise ValueError("no tariff"))`.

    The first frame of the traceback is that of whoever called the function and caught the error. Of the others the last
    one counts that is no library's, because there the function can be corrected.
    """
    text = " | ".join(line.strip() for line in said(error).splitlines() if line.strip())
    told = f"{type(error).__name__}: {text}" if text else type(error).__name__
    place = _place(error.__traceback__)
    return written(f"{told} ({place})" if place else told)


def said(error: BaseException) -> str:
    """The text of an error; empty where a class of a user's own cannot tell one."""
    try:
        return str(error)
    except Exception:
        return ""


def written(text: str) -> str:
    """A text that tables can keep: surrogates, which are no UTF-8, are written as in Python, such as `\\udcff`."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def _place(trace: TracebackType | None) -> str | None:
    frames = traceback.extract_tb(trace)[1:]
    if not frames:
        return None
    own = [frame for frame in frames if not _is_of_others(frame.filename)]
    frame = (own or frames)[-1]
    line = f": {frame.line}" if frame.line else ""
    return f"{frame.filename}, line {frame.lineno}, in {frame.name}{line}"


def _is_of_others(filename: str) -> bool:
    return filename.startswith(_OF_OTHERS) or filename.startswith("<frozen") or filename.startswith(sys.base_prefix)
