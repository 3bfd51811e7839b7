"""Triggers: with which row, or at which time, a window fires, and whether its content goes then.

A trigger is a pure function of a row and of what it has noted of the window so far, numbers by name. It is called with
each row of a window, so its notes live and end with the window, and are merged where windows are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from streaming.base import canonical, check_number
from streaming.declare import check_callable, micros

Notes = dict[str, int]
"""The notes of a trigger on a window."""


class Trigger(ABC):
    """When a window fires (as Flink's `Trigger`). To add one, implement `__call__` as a frozen dataclass."""

    purges: bool = False
    """True if the content of a window goes when it fires."""

    at_end: bool = False
    """True if a window also fires when the watermark has reached its end."""

    early: int | None = None
    """At most how often a window fires before its end, in microseconds; None where it does not."""

    @abstractmethod
    def __call__(self, notes: Notes, value: Any, at: int) -> bool:
        """True if the window fires with this row, which is in its content already; changes `notes` in place."""

    def merged(self, notes: Iterable[Notes]) -> Notes:
        """The notes of windows that have become one; by default the sum of each."""
        together: Notes = {}
        for each in notes:
            for name, number in each.items():
                together[name] = together.get(name, 0) + number
        return together


@dataclass(frozen=True)
class NeverTrigger(Trigger):
    """Never fires: what a window holds is only read (Flink's `NeverTrigger`, the default of global windows)."""

    def __call__(self, notes: Notes, value: Any, at: int) -> bool:
        return False


@dataclass(frozen=True)
class EventTimeTrigger(Trigger):
    """Fires when the watermark has reached the window's end (Flink's `EventTimeTrigger`, the default of windows).

    With `every`, such as "1 second", also before that, to the side output `early`: once rows have come, and at most
    once in each second of event time, whole seconds counted from the epoch.
    """

    every: str | None = None
    at_end = True

    def __post_init__(self) -> None:
        _ = self.early

    @cached_property
    def early(self) -> int | None:  # type: ignore[override]
        """`every` in microseconds."""
        return None if self.every is None else micros(self.every)

    def __call__(self, notes: Notes, value: Any, at: int) -> bool:
        return False


@dataclass(frozen=True)
class CountTrigger(Trigger):
    """Fires with every `rows`th row (Flink's `CountTrigger`).

    Raises:
        DeclarationError: `rows` is no number of rows.
    """

    rows: int

    def __post_init__(self) -> None:
        check_number(f"rows of CountTrigger({self.rows!r})", self.rows, "number of rows")

    def __call__(self, notes: Notes, value: Any, at: int) -> bool:
        rows = notes.get("rows", 0) + 1
        notes["rows"] = rows if rows < self.rows else 0
        return rows >= self.rows


@dataclass(frozen=True)
class ValueTrigger(Trigger):
    """Fires with a row for whose value `condition` is true.

    Raises:
        DeclarationError: `condition` is no function that other processes find by its name.
    """

    condition: Callable[[Any], bool]

    def __post_init__(self) -> None:
        check_callable("condition of a value trigger", self.condition)

    def __call__(self, notes: Notes, value: Any, at: int) -> bool:
        return bool(self.condition(value))


@dataclass(frozen=True)
class RepeatTrigger(Trigger):
    """Fires with a row whose value came before, at most `within` (inclusive) earlier in event time."""

    within: str

    def __post_init__(self) -> None:
        _ = self._longest

    def __call__(self, notes: Notes, value: Any, at: int) -> bool:
        for name in [name for name, before in notes.items() if at - before > self._longest]:
            del notes[name]
        name = repr(canonical(value))
        repeated = name in notes
        notes[name] = max(at, notes.get(name, at))
        return repeated

    def merged(self, notes: Iterable[Notes]) -> Notes:
        """The newest time of each value."""
        together: Notes = {}
        for each in notes:
            for name, time in each.items():
                together[name] = max(time, together.get(name, time))
        return together

    @cached_property
    def _longest(self) -> int:
        return micros(self.within)


@dataclass(frozen=True)
class PurgingTrigger(Trigger):
    """As `trigger`, and the window's content goes with each firing (Flink's `PurgingTrigger`). The window stays."""

    trigger: Trigger
    purges = True

    def __call__(self, notes: Notes, value: Any, at: int) -> bool:
        return self.trigger(notes, value, at)

    def merged(self, notes: Iterable[Notes]) -> Notes:
        """As `trigger` merges them."""
        return self.trigger.merged(notes)

    @property
    def at_end(self) -> bool:  # type: ignore[override]
        """As `trigger`."""
        return self.trigger.at_end

    @property
    def early(self) -> int | None:  # type: ignore[override]
        """As `trigger`."""
        return self.trigger.early
