"""Positions of SQL views: the point up to which one has followed each of its sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from deltalake import DeltaTable

from streaming.base import FrozenMapping
from streaming.declare import ExternalTable, Operator, View
from streaming.operators import REVISION_OF, Progress, moved_on, revision_followed


@dataclass(frozen=True)
class Position:
    """The point up to which an SQL view has followed its sources: batches of streams, `revisions` of all others."""

    progress: Progress
    revisions: Mapping[str, int]

    @classmethod
    def of(cls, view: View, table: DeltaTable | None) -> Self:
        """The position that an open table of the view records."""
        others: tuple[Operator | ExternalTable, ...] = (*view.reads_current, *view.external)
        revisions = {each.name: revision_followed(table, each) for each in others}
        return cls(Progress.of(view, table), FrozenMapping(revisions))

    def __getitem__(self, relation: str) -> int:
        return self.revisions[relation] if relation in self.revisions else self.progress.through[relation]

    def numbers(self) -> dict[str, int]:
        """The numbers by which a table keeps this position."""
        return {**self.progress.numbers(), **{REVISION_OF.format(name): at for name, at in self.revisions.items()}}

    def fence(self, view: View, table: DeltaTable) -> None:
        """Refuse a step that begins at this position where the open table has another one by now.

        Raises:
            FencedError: another process has taken over.
        """
        self.progress.fence(view, table)
        there = Position.of(view, table)
        if there != self:
            raise moved_on(view, str(dict(self.revisions)), str(dict(there.revisions)))
