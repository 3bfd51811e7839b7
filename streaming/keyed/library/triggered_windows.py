"""Windows with a trigger of their own, and an evictor: Flink's window operator as a keyed function."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from streaming.base import MICROSECOND, DeclarationError, check_type, signed_interval
from streaming.declare import Keyed, OnError, Stream, micros
from streaming.keyed.count_windows import EXPIRED
from streaming.keyed.fold import Key
from streaming.keyed.library.evictors import Evictor
from streaming.keyed.library.triggers import EventTimeTrigger, NeverTrigger, Notes, Trigger
from streaming.keyed.schemas import type_of
from streaming.windows import SessionWindow, Tumbling

EARLY, TOO_LATE, UNFIRED = "early", "too_late", "unfired"
"""The side outputs of results before the end of a window, of rows that came after it, and of what never fired."""

_CLOSE, _EARLY, _EXPIRE = "close", "early", "expire"

Function = Callable[[list[Any]], Mapping[str, Any]]
_Open = dict[str, Any]
"""A window that is open: `start` and `end` (None where it never ends), `content`, the trigger's `notes`, when it was
`fired` early, and when it is `due` to be, or, at its end, to go aside as it has not fired. A dict, as it comes out of
the table of state."""


class _Assigner(ABC):
    """The way in which the windows of a key come and grow."""

    ends: bool = True
    """True if windows end."""

    waits: int = 0
    """The time after its end for which a window stays open, in microseconds."""

    @abstractmethod
    def assign(self, windows: list[_Open], at: int, stamp: int, trigger: Trigger) -> _Open | None:
        """The window of a row, which is added to `windows` if it is new; None where the row came too late for it."""


@dataclass(frozen=True)
class _Always(_Assigner):
    """One window, which never ends (Flink's `GlobalWindows`)."""

    ends = False

    def assign(self, windows: list[_Open], at: int, stamp: int, trigger: Trigger) -> _Open | None:
        """The one."""
        return windows[0] if windows else _opened(windows, None, None)


@dataclass(frozen=True)
class _FixedLength(_Assigner):
    """Windows of one length, one after the other: `size` and `offset` in microseconds. Late: `end <= stamp`."""

    size: int
    offset: int

    def assign(self, windows: list[_Open], at: int, stamp: int, trigger: Trigger) -> _Open | None:
        """The window that the row's time is in."""
        start = at - (at - self.offset) % self.size
        if start + self.size <= stamp:
            return None
        there = (window for window in windows if window["start"] == start)
        return next(there, None) or _opened(windows, start, start + self.size)


@dataclass(frozen=True)
class _Sessions(_Assigner):
    """Sessions of rows at most `gap` microseconds apart, which merge where a row joins them. Late: `at < stamp`.

    A row at the very end of a session still belongs to it, so a session is open until the watermark has passed its end.
    """

    gap: int
    waits = 1

    def assign(self, windows: list[_Open], at: int, stamp: int, trigger: Trigger) -> _Open | None:
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


def _assigner_of(name: str, window: Tumbling | SessionWindow | None) -> _Assigner:
    """The assigner that a declared window stands for; None is the one that never ends.

    Raises:
        DeclarationError: another kind of window.
    """
    if window is None:
        return _Always()
    if isinstance(window, Tumbling):
        return _FixedLength(micros(window.size), signed_interval(window.offset) // MICROSECOND)
    if isinstance(window, SessionWindow) and window.gap is not None:
        return _Sessions(micros(window.gap))
    raise DeclarationError(
        f"window={window!r} of triggered window {name!r} has no triggers; use Tumbling(...), SessionWindow(gap), or "
        "None for one window that never ends."
    )


def _opened(windows: list[_Open], start: int | None, end: int | None) -> _Open:
    notes: Notes = {}
    windows.append({"start": start, "end": end, "content": [], "notes": notes, "fired": None, "due": None})
    return windows[-1]


def _all(windows: Iterable[_Open], name: str) -> list[int]:
    return [window[name] for window in windows if window[name] is not None]


@dataclass(frozen=True)
class _Windows:
    """The function that updates the windows of a key with a row, and with the time."""

    value: str
    function: Function
    assigner: _Assigner
    trigger: Trigger
    evictor: Evictor | None
    expire_after: int | None

    def __call__(self, key: Key, row: Any) -> None:
        windows = key.windows or []
        window = self.assigner.assign(windows, key.at, key._stamp, self.trigger)
        if window is None:
            key.emit(TOO_LATE, value=row[self.value])
            return
        window["content"].append({"at": key.at, "value": row[self.value]})
        if self.evictor is not None and self.evictor.for_good and not self.evictor.after:
            window["content"] = self.evictor(window["content"])
        fires = self.trigger(window["notes"], row[self.value], key.at)
        if fires:
            self.fire(key, window)
        due = None if self.trigger.early is None else _due(window, key.at, self.trigger.early)
        # What has not fired by then is due to go aside at the end.
        window["due"] = window["end"] if due is None and not (fires or self.trigger.at_end) else due
        if self.expire_after is not None:
            key.timer(_EXPIRE, max(key.at + self.expire_after, key.pending(_EXPIRE) or key.at))
        self.keep(key, windows)

    def keep(self, key: Key, windows: list[_Open]) -> None:
        """Keep the windows, and set the timers to the first time at which something happens to one of them."""
        key.windows = windows or None
        ends = [window["end"] + self.assigner.waits for window in windows if self.assigner.ends]
        dues = [due for window in windows if (due := _due_early(window)) is not None]
        for timer, times in ((_CLOSE, ends), (_EARLY, dues)):
            if not times:
                key.cancel(timer)
            # One that is due at this very instant may not be set again, and need not be.
            elif key.pending(timer) != min(times):
                key.timer(timer, min(times))

    def fire(self, key: Key, window: _Open, to: str = "") -> None:
        """Emit what the function makes of the window's content, if there is any."""
        if not window["content"]:
            return
        evictor, content = self.evictor, window["content"]
        if evictor is not None and not evictor.after:
            content = evictor(content)
        if content:
            bounds = {"window_start": window["start"], "window_end": window["end"]} if self.assigner.ends else {}
            key.emit(to, **bounds, rows=len(content), **self.function([entry["value"] for entry in content]))
        if content and evictor is not None and evictor.after:
            content = evictor(content)
        window["content"] = [] if self.trigger.purges else content


@dataclass(frozen=True)
class _Close:
    """Ends the windows whose end the watermark has reached."""

    windows: _Windows

    def __call__(self, key: Key) -> None:
        still_open = []
        for window in key.windows or []:
            if window["end"] + self.windows.assigner.waits > key.at:
                still_open.append(window)
            elif self.windows.trigger.at_end:
                self.windows.fire(key, window)
            elif window["due"] is not None:
                # Its last row came after it had fired for the last time, and goes nowhere else.
                self.windows.fire(key, window, UNFIRED)
        self.windows.keep(key, still_open)


@dataclass(frozen=True)
class _FireEarly:
    """Fires the windows that are due to before their end."""

    windows: _Windows

    def __call__(self, key: Key) -> None:
        windows = key.windows or []
        for window in windows:
            due = _due_early(window)
            if due is not None and due <= key.at:
                window["fired"], window["due"] = key.at, None
                self.windows.fire(key, window, EARLY)
        self.windows.keep(key, windows)


@dataclass(frozen=True)
class _Expire:
    """Gives up the window of a key that had no row for long, to the side output."""

    windows: _Windows

    def __call__(self, key: Key) -> None:
        for window in key.windows or []:
            self.windows.fire(key, window, EXPIRED)
        key.clear()


def _due_early(window: _Open) -> int | None:
    """When the window is to fire before its end; None where it is not."""
    due: int | None = window["due"]
    return due if due is not None and due < window["end"] else None


def _due(window: _Open, at: int, every: int) -> int | None:
    """When the window is to fire early, once a row came at `at`: with the last row of a second in which it may."""
    fired, due = window["fired"], window["due"]
    soonest = at if fired is None else max(at, (fired // every + 1) * every)
    if due is not None:
        # Within its second it moves on with the rows. It stays in it, or rows that keep coming would put it off.
        soonest = max(due, soonest) if due // every == soonest // every else min(due, soonest)
    return soonest if soonest < window["end"] else None


def _check_goes_together(name: str, assigner: _Assigner, trigger: Trigger, expire_after: str | None) -> None:
    if not assigner.ends and (trigger.at_end or trigger.early is not None):
        raise DeclarationError(
            f"trigger={trigger!r} of triggered window {name!r} waits for the end of a window that never ends; use "
            "CountTrigger, ValueTrigger or RepeatTrigger, or declare a window."
        )
    if assigner.ends and expire_after is not None:
        raise DeclarationError(
            f"expire_after={expire_after!r} of triggered window {name!r} is for windows that never end; leave it out."
        )


def triggered_window(
    name: str,
    of: Stream,
    *,
    value: str,
    function: Function,
    result: str,
    window: Tumbling | SessionWindow | None = None,
    trigger: Trigger | None = None,
    evictor: Evictor | None = None,
    by: tuple[str, ...] = (),
    expire_after: str | None = None,
    on_error: OnError = "pause",
    version: int = 1,
    description: str = "",
) -> Keyed:
    """A keyed function with windows that fire when a trigger says so (Flink's `window().trigger().evictor()`).

    `function` is handed the values of column `value` in the order of arrival and returns the columns of `result` by
    name; `rows` says how many values there were. Without `window` there is one for each key that never closes (Flink's
    `GlobalWindows`); all others have the columns `window_start` and `window_end`, and a row that came after the end of
    its window goes to the side output `too_late`.

    `trigger` is by default the end of the window, and never where it has none; a declared one takes its place. What a
    window holds is the state, which anyone may read, and goes with it. A window that ends with rows for which its
    trigger has not fired any more goes, as it is then, to the side output `unfired`. A window that never closes is
    forgotten only with `expire_after`: once its key had no row for that long in event time, its content goes to the
    side output `expired`.

    Raises:
        DeclarationError: an unknown column or one whose type is not known, a kind of window that has no triggers, or a
            choice that goes with windows that end, or with those that do not, only.
    """
    check_type(f"of= of triggered window {name!r}", of, Stream, "the stream that it reads")
    assigner = _assigner_of(name, window)
    chosen = trigger if trigger is not None else EventTimeTrigger() if assigner.ends else NeverTrigger()
    check_type(f"trigger= of triggered window {name!r}", chosen, Trigger, "a trigger, such as CountTrigger(3)")
    if evictor is not None:
        check_type(f"evictor= of triggered window {name!r}", evictor, Evictor, "an evictor, such as CountEvictor(100)")
    _check_goes_together(name, assigner, chosen, expire_after)
    kind = type_of(f"value= of triggered window {name!r}", of, value)
    after = None if expire_after is None else micros(expire_after)
    windows = _Windows(value, function, assigner, chosen, evictor, after)
    bounds = "window_start timestamp, window_end timestamp, " if assigner.ends else ""
    columns = f"{bounds}rows bigint, {result}"
    sides = {
        EARLY: (chosen.early is not None, columns),
        TOO_LATE: (assigner.ends, f"value {kind}"),
        UNFIRED: (assigner.ends and not chosen.at_end, columns),
        EXPIRED: (after is not None, columns),
    }
    return Keyed(
        name=name,
        of=of,
        by=by,
        state=(
            "windows array<struct<start: timestamp, end: timestamp, "
            f"content: array<struct<at: timestamp, value: {kind}>>, "
            "notes: map<string, bigint>, fired: timestamp, due: timestamp>>"
        ),
        result=columns,
        on_row=windows,
        timers={
            **({_CLOSE: _Close(windows)} if assigner.ends else {}),
            **({_EARLY: _FireEarly(windows)} if chosen.early is not None else {}),
            **({_EXPIRE: _Expire(windows)} if after is not None else {}),
        },
        sides={side: ddl for side, (there, ddl) in sides.items() if there},
        on_error=on_error,
        version=version,
        description=description,
    )
