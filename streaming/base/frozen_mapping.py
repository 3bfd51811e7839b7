"""A mapping that a declaration can hold: nobody changes it, and it can be hashed, pickled and copied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class FrozenMapping(Mapping[K, V]):
    """The entries of `entries`, copied, in their order.

    Equal to every mapping with the same entries, whatever their order, as a dict is. Hashable where its values are.
    """

    __slots__ = ("_entries",)

    def __init__(self, entries: Mapping[K, V]) -> None:
        self._entries = dict(entries)

    def __getitem__(self, key: K) -> V:
        return self._entries[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __hash__(self) -> int:
        return hash(frozenset(self._entries.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenMapping, (self._entries,)

    def __repr__(self) -> str:
        return f"FrozenMapping({self._entries!r})"
