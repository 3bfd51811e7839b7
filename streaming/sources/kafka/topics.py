"""Topics and their partitions, by name."""

from __future__ import annotations

from dataclasses import dataclass

Partition = tuple[str, int]
"""A topic's name and the number of one of its partitions."""


@dataclass(frozen=True)
class Topic:
    """A topic as it is now: a topic that is created again under its name has another `id`."""

    name: str
    id: str
    partitions: tuple[int, ...]


def name_of(partition: Partition) -> str:
    """The name of a partition everywhere: `orders-0`."""
    return f"{partition[0]}-{partition[1]}"
