"""How far a view is: the table of its first results says so itself."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from deltalake import DeltaTable

from streaming.base import FencedError, ViewError, optional_instant, to_micros
from streaming.declare import Operator, Windowed
from streaming.log import Batch
from streaming.operators import GENERATION, generation_of

_THROUGH, _CLOSED = "through", "closed"


@dataclass(frozen=True)
class Position:
    """The log's batches up to `batch` are followed (-1 where none is), and what is closed by `watermark` is published.

    The watermark is the clock's after that batch; null before the first valid row. `generation` counts how often the
    view was built anew.
    """

    batch: int = -1
    watermark: datetime | None = None
    generation: int = 0

    @classmethod
    def of(cls, table: DeltaTable | None) -> Position:
        """What an open table says; none is followed where there is no table yet."""
        batch = None if table is None else table.transaction_version(_THROUGH)
        if table is None or batch is None:
            return cls()
        return cls(batch, optional_instant(table.transaction_version(_CLOSED)), generation_of(table))

    def numbers(self) -> dict[str, int]:
        """The position as a table keeps it, the watermark in microseconds since the epoch."""
        closed = {} if self.watermark is None else {_CLOSED: to_micros(self.watermark)}
        generation = {GENERATION: self.generation} if self.generation else {}
        return {_THROUGH: self.batch, **closed, **generation}

    def after(self, batch: Batch) -> Position:
        """Where the view is once it has followed the log up to `batch`."""
        return replace(self, batch=batch.number, watermark=batch.after.watermark)

    def fence(self, view: Operator, table: DeltaTable) -> None:
        """Refuse to write what follows from this position where the table is elsewhere by now.

        Raises:
            FencedError: another process has taken over.
        """
        there = Position.of(table)
        if there != self:
            raise moved_on(view, self.batch, there.batch)


def moved_on(view: Operator, before: int, there: int) -> FencedError:
    """The error of a process that has followed a view up to batch `before` where its table is at batch `there`."""
    return FencedError(
        f"view {view.name!r} was at batch {before} of its log and is at batch {there} now, so another process has "
        "taken over while this one was away. Nothing is lost; let the other one run, or stop it and start again "
        f"(`tidemark status {view.folder}` names it)."
    )


def check_position(view: Windowed, table: DeltaTable | None) -> None:
    """Refuse a table of an older version of the platform, which does not say how far it is.

    Raises:
        ViewError: with the way out.
    """
    if table is not None and Position.of(table).batch < 0 and table.get_add_actions().num_rows:
        raise ViewError(
            f"the tables of view {view.name!r} are of an older version of Tidemark, which kept elsewhere how far they "
            f"are. Build them anew from the log, which stays as it is, with `tidemark rebuild {view.name}`."
        )
