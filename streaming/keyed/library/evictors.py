"""Evictors: which rows of a window's content go when it fires, before or after its function."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from streaming.base import DeclarationError, check_number
from streaming.declare import micros

Content = list[dict[str, Any]]
"""The rows of a window in the order in which they came, each with its event time `at` and its `value`."""


class Evictor(ABC):
    """Which rows stay (as Flink's `Evictor`). To add one, implement `__call__` as a frozen dataclass with `after`."""

    after: bool
    """True if rows go after the function has seen them, instead of before."""

    for_good: bool = False
    """True if a row that would go now would also go at any later time, so that it need not be kept until then."""

    @abstractmethod
    def __call__(self, content: Content) -> Content:
        """The rows that stay; `content` is never empty."""


@dataclass(frozen=True)
class CountEvictor(Evictor):
    """Keeps the last `rows` (Flink's `CountEvictor`).

    Raises:
        DeclarationError: `rows` is no number of rows.
    """

    rows: int
    after: bool = False
    for_good = True

    def __post_init__(self) -> None:
        check_number(f"rows of CountEvictor({self.rows!r})", self.rows, "number of rows")

    def __call__(self, content: Content) -> Content:
        return content[-self.rows :]


@dataclass(frozen=True)
class TimeEvictor(Evictor):
    """Keeps rows that are less than `length` older than the newest, in event time (Flink's `TimeEvictor`)."""

    length: str
    after: bool = False
    for_good = True

    def __post_init__(self) -> None:
        _ = self._length

    def __call__(self, content: Content) -> Content:
        too_old = max(entry["at"] for entry in content) - self._length
        return [entry for entry in content if entry["at"] > too_old]

    @cached_property
    def _length(self) -> int:
        return micros(self.length)


@dataclass(frozen=True)
class DeltaEvictor(Evictor):
    """Keeps rows whose value differs by less than `threshold` from that of the last row (Flink's `DeltaEvictor`).

    Raises:
        DeclarationError: `threshold` is not above 0.
    """

    threshold: float
    after: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.threshold, int | float) or isinstance(self.threshold, bool) or not self.threshold > 0:
            raise DeclarationError(f"DeltaEvictor({self.threshold!r}) has no threshold; use a number above 0.")

    def __call__(self, content: Content) -> Content:
        last = content[-1]["value"]
        return [entry for entry in content if abs(entry["value"] - last) < self.threshold]
