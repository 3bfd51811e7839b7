"""Errors of users' functions in one line: the error, and the line of the function that raised it."""

from __future__ import annotations

import sys
import sysconfig
import traceback
from types import TracebackType

_OF_OTHERS = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


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
