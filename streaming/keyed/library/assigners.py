"""Which windows of a key a row goes into: one that never ends, one of a fixed length, or a session."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from streaming.base import MICROSECOND, DeclarationError, signed_interval
from streaming.declare import micros
from streaming.keyed.library.triggers import Notes, Trigger
from streaming.windows import SessionWindow, Tumbling

Open = dict[str, Any]
"""A window that is open: `start` and `end` (None where it never ends), `content`, the trigger's `notes`, when it was
`fired` early, and when it is `due` to be, or, at its end, to go aside as it has not fired. A dict, as it comes out of
the table of state."""


class Assigner(ABC):
    """How the windows of a key come and grow."""

    ends: bool = True
    """Whether windows end."""

    waits: int = 0
    """How long after its end a window is open, in microseconds."""

    @abstractmethod
    def assign(self, windows: list[Open], at: int, stamp: int, trigger: Trigger) -> Open | None:
        """The window of a row, which is added to `windows` if it is new; None where the row came too late for it."""


@dataclass(frozen=True)
class Always(Assigner):
    """One window, which never ends (Flink's `GlobalWindows`)."""

    ends = False

    def assign(self, windows: list[Open], at: int, stamp: int, trigger: Trigger) -> Open | None:
        """The one."""
        return windows[0] if windows else _opened(windows, None, None)


@dataclass(frozen=True)
class FixedLength(Assigner):
    """Windows of one length, one after the other: `size` and `offset` in microseconds. Late: `end <= stamp`."""

    size: int
    offset: int

    def assign(self, windows: list[Open], at: int, stamp: int, trigger: Trigger) -> Open | None:
        """The window that the row's time is in."""
        start = at - (at - self.offset) % self.size
        if start + self.size <= stamp:
            return None
        there = (window for window in windows if window["start"] == start)
        return next(there, None) or _opened(windows, start, start + self.size)


@dataclass(frozen=True)
class Sessions(Assigner):
    """Sessions of rows at most `gap` microseconds apart, which merge where a row joins them. Late: `at < stamp`.

    A row at the very end of a session still belongs to it, so a session is open until the watermark has passed its end.
    """

    gap: int
    waits = 1

    def assign(self, windows: list[Open], at: int, stamp: int, trigger: Trigger) -> Open | None:
        """The session that the row is in, together with all that it touches."""
        if at < stamp:
            return None
        touched = [window for window in windows if window["start"] - self.gap <= at <= window["end"]]
        start, end = min([at, *_all(touched, "start")]), max([at + self.gap, *_all(touched, "end")])
        session = {
            "start": start,
            "end": end,
            "content": [entry for window in touched for entry in window["content"]],
            "notes": trigger.merged(window["notes"] for window in touched),
            "fired": max(_all(touched, "fired"), default=None),
            "due": min(_all(touched, "due"), default=None),
        }
        windows[:] = [window for window in windows if window not in touched] + [session]
        return session


def assigner_of(name: str, window: Tumbling | SessionWindow | None) -> Assigner:
    """The assigner that a declared window stands for; None is the one that never ends.

    Raises:
        DeclarationError: another kind of window.
    """
    if window is None:
        return Always()
    if isinstance(window, Tumbling):
        return FixedLength(micros(window.size), signed_interval(window.offset) // MICROSECOND)
    if isinstance(window, SessionWindow) and window.gap is not None:
        return Sessions(micros(window.gap))
    raise DeclarationError(
        f"window={window!r} of triggered window {name!r} has no triggers; use Tumbling(...), SessionWindow(gap), or "
        "None for one window that never ends."
    )


def _opened(windows: list[Open], start: int | None, end: int | None) -> Open:
    notes: Notes = {}
    windows.append({"start": start, "end": end, "content": [], "notes": notes, "fired": None, "due": None})
    return windows[-1]


def _all(windows: Iterable[Open], name: str) -> list[int]:
    return [window[name] for window in windows if window[name] is not None]
