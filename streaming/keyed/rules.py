"""The rules that are in force for a row or a timer: pure, and the same whenever they are asked for."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from streaming.base import FunctionError, is_less
from streaming.declare import Pinned
from streaming.keyed.rows import row_class

Chains = dict[tuple[Any, ...], list[tuple[int, tuple[Any, ...]]]]
"""Per rule what it became: the batch of the control stream that changed it, and the row, each newer than the last."""

_BATCH = itemgetter(0)


class RuleHistory:
    """The history of rules, batch by batch of their control stream."""

    def __init__(self, pinned: Pinned, chains: Chains | None = None) -> None:
        self.pinned = pinned
        self.chains: Chains = chains or {}
        self._keys = [pinned.of.columns.index(name) for name in pinned.by]
        self._version = None if pinned.version is None else pinned.of.columns.index(pinned.version)
        self._removed = None if pinned.removed is None else pinned.of.columns.index(pinned.removed)

    def add(self, batch: int, row: tuple[Any, ...]) -> None:
        """Take a row of the control stream, in the order of its log; one with a lesser version changes nothing."""
        chain = self.chains.setdefault(tuple(row[place] for place in self._keys), [])
        if chain and self._version is not None:
            new, old = row[self._version], chain[-1][1][self._version]
            if old is not None and (new is None or is_less(new, old)):
                return
        chain.append((batch, row))

    def since(self, batch: int) -> RuleHistory:
        """The history without what was superseded by `batch`: nobody asks for rules of earlier batches any more."""
        chains = {
            key: chain[max(bisect_right(chain, batch, key=_BATCH) - 1, 0) :] for key, chain in self.chains.items()
        }
        if self._removed is not None and self._version is None:
            # With versions, one that was removed still has to outdo those that come after it.
            chains = {key: chain for key, chain in chains.items() if not self._is_gone(chain, batch)}
        return RuleHistory(self.pinned, chains)

    def _is_gone(self, chain: list[tuple[int, tuple[Any, ...]]], batch: int) -> bool:
        """True if a rule was removed up to a batch, and has not come again."""
        return len(chain) == 1 and chain[0][0] <= batch and bool(chain[0][1][self._removed or 0])

    def of_all(self, column: str) -> list[Any]:
        """The value of a column in each rule that is kept, in the order of their places."""
        place = self.pinned.of.columns.index(column)
        return [row[place] for _, chain in self.in_order() for _, row in chain]

    def in_order(self) -> list[tuple[tuple[Any, ...], list[tuple[int, tuple[Any, ...]]]]]:
        """The history of each rule by key, nulls first: the order in which they came depends on when they were read."""
        return sorted(self.chains.items(), key=lambda entry: [(value is not None, value) for value in entry[0]])

    def __len__(self) -> int:
        return sum(map(len, self.chains.values()))


class RulesInForce(Mapping[tuple[Any, ...], Any]):
    """The mapping that a function sees as `key.rules`: the rows of the control stream in force, by their keys."""

    __slots__ = ("_by", "_chains", "_removed", "pin")

    def __init__(self, chains: Mapping[tuple[Any, ...], list[tuple[int, Any]]], pinned: Pinned, pin: int) -> None:
        self._chains, self._by = chains, pinned.by
        self._removed = None if pinned.removed is None else pinned.of.columns.index(pinned.removed)
        self.pin = pin
        """The newest batch of the control stream that is seen."""

    def __getitem__(self, key: tuple[Any, ...]) -> Any:
        if not isinstance(key, tuple) or len(key) != len(self._by):
            names = ", ".join(f"row.{name}" for name in self._by)
            raise FunctionError(
                f"there is no rule {key!r}: rules are looked up by a tuple of {len(self._by)}, as in key.rules.get("
                f"{f'({names},)' if len(self._by) == 1 else f'({names})'})."
            )
        chain = self._chains.get(key)
        place = bisect_right(chain, self.pin, key=_BATCH) if chain else 0
        if not chain or not place:
            raise KeyError(key)
        row = chain[place - 1][1]
        if self._removed is not None and row[self._removed]:
            raise KeyError(key)
        return row

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        there = (key for key, chain in self._chains.items() if chain[0][0] <= self.pin)
        return there if self._removed is None else (key for key in there if self.get(key) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass(frozen=True)
class Pins:
    """Which batch of the control stream goes with which batch of the data, and with which time of a timer.

    `batches`: from which batch on, in order. `times`: up to which time, in order; the last stands for all after it too.
    """

    batches: tuple[tuple[int, int], ...]
    times: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, batches: Iterable[tuple[int, int]], marks: Iterable[tuple[int, int]]) -> Pins:
        """The pins of `batches`, (batch, pin) in order, and of `marks`, (watermark after a batch, pin) in order."""
        changes: list[tuple[int, int]] = []
        for batch, pin in batches:
            if not changes or changes[-1][1] != pin:
                changes.append((batch, pin))
        times: list[tuple[int, int]] = []
        for mark, pin in marks:
            # Of batches that the clock did not move in between, the first one fires the timers.
            if times and times[-1][0] == mark:
                continue
            if times and times[-1][1] == pin:
                times.pop()
            times.append((mark, pin))
        return cls(tuple(changes), tuple(times))

    @property
    def first(self) -> int:
        """The earliest that is asked for."""
        return min((pin for _, pin in (*self.batches[:1], *self.times[:1])), default=-1)

    @property
    def last(self) -> int:
        """The latest that is asked for."""
        return max((pin for _, pin in (*self.batches[-1:], *self.times[-1:])), default=-1)

    def of_batch(self, batch: int) -> int:
        """The pin that the rows of a batch see."""
        return self.batches[max(bisect_right(self.batches, batch, key=_BATCH) - 1, 0)][1]

    def of_time(self, at: int) -> int:
        """The pin that a timer sees: that of the first batch after which the clock had reached it."""
        return self.times[min(bisect_left(self.times, at, key=_BATCH), len(self.times) - 1)][1]


@dataclass(frozen=True)
class PinnedRules:
    """The rules of a function over some batches, as they are handed to a task."""

    history: RuleHistory
    pins: Pins

    def opened(self) -> RulesByPin:
        """The pinned rules, opened for use in a task."""
        return RulesByPin(self)


class RulesByPin:
    """Finds the rules that are in force for a row or a timer."""

    def __init__(self, rules: PinnedRules) -> None:
        pinned = rules.history.pinned
        row, self._pinned = row_class(pinned.of.columns), pinned
        self._chains = {
            key: [(batch, tuple.__new__(row, values)) for batch, values in chain]
            for key, chain in rules.history.in_order()
        }
        self._placed = [(key, row) for key, chain in self._chains.items() for _, row in chain]
        self._pins = rules.pins
        self._of_batch: dict[int, RulesInForce] = {}

    def of_batch(self, batch: int) -> RulesInForce:
        """Those for the rows of a batch of the data."""
        rules = self._of_batch.get(batch)
        if rules is None:
            rules = self._of_batch[batch] = self._at(self._pins.of_batch(batch))
        return rules

    def of_time(self, at: int, rules: RulesInForce) -> RulesInForce:
        """Those for a timer that was set to `at`, by a key that saw `rules`: a late row may set one in the past."""
        pin = self._pins.of_time(at)
        return rules if rules.pin >= pin else self._at(pin)

    def matching(self, in_force: RulesInForce, places: Iterable[int]) -> list[Any]:
        """The rules at these places, without those that are not in force."""
        placed = (self._placed[place] for place in places)
        return [row for key, row in placed if in_force.get(key) is row]

    @property
    def none(self) -> RulesInForce:
        """Those before any batch."""
        return self._at(-1)

    def _at(self, pin: int) -> RulesInForce:
        return RulesInForce(self._chains, self._pinned, pin)
