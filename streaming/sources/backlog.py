"""The backlog of a source, which no batch has taken yet, as a value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

_NAMED = 5


@dataclass(frozen=True)
class SourceBacklog:
    """The backlog of a source, which no batch has taken yet: so many `items`, counted in `unit`, of `size` bytes.

    `size` is None where the source does not tell. `warning` is a sentence on what the source holds and no batch will
    ever take, with what to do about it; empty where there is no such thing. `partitions`: the items of each source
    partition in which some wait, where the source tells.
    """

    items: int
    unit: Literal["files", "rows"]
    size: int | None = None
    warning: str = ""
    partitions: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.items:,} {self.unit} wait"


def by_unit(backlogs: Iterable[SourceBacklog]) -> tuple[SourceBacklog, ...]:
    """The backlogs of several sources added up, one for each unit: files and rows cannot be added."""
    sums: dict[str, SourceBacklog] = {}
    for backlog in backlogs:
        before = sums.get(backlog.unit, SourceBacklog(0, backlog.unit))
        sums[backlog.unit] = SourceBacklog(
            before.items + backlog.items,
            backlog.unit,
            before.size if backlog.size is None else (before.size or 0) + backlog.size,
            " ".join(filter(None, (before.warning, backlog.warning))),
            Counter(before.partitions) + Counter(backlog.partitions),
        )
    return tuple(sums.values())


def backlog_numbers(backlogs: Sequence[SourceBacklog]) -> dict[str, int]:
    """The numbers of backlogs of different units under the names that metrics have."""
    sizes = [backlog.size for backlog in backlogs if backlog.size is not None]
    items = {f"backlog_{backlog.unit}": backlog.items for backlog in backlogs}
    return items | ({"backlog_bytes": sum(sizes)} if sizes else {})


def largest_partitions(backlog: SourceBacklog) -> str:
    """Where most waits, in words; empty where nothing does, or the source does not tell."""
    most = sorted(backlog.partitions.items(), key=lambda entry: (-entry[1], entry[0]))
    more = f" and {len(most) - _NAMED:,} more" if len(most) > _NAMED else ""
    named = ", ".join(f"{name} ({items:,})" for name, items in most[:_NAMED])
    return f"{backlog.unit} wait in {named}{more}." if most else ""
