"""Progress of a run: a live line per query on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.table import Table

from streaming.base import counted

_PLAIN_EVERY = 25


@dataclass(frozen=True)
class QueryProgress:
    """What one query has done in this run; `late` and `watermark` are null where they mean nothing."""

    query: str
    batches: int = 0
    rows: int = 0
    rejected: int | None = None
    late: int | None = None
    watermark: datetime | None = None

    def after(
        self,
        rows: int,
        rejected: int | None = None,
        late: int | None = None,
        watermark: datetime | None = None,
    ) -> QueryProgress:
        """The progress after one more batch."""
        return replace(
            self,
            batches=self.batches + 1,
            rows=self.rows + rows,
            rejected=None if rejected is None else (self.rejected or 0) + rejected,
            late=None if late is None else (self.late or 0) + late,
            watermark=watermark or self.watermark,
        )

    def text(self) -> str:
        """One plain line."""
        parts = [f"{self.query}: {counted(self.batches, 'batch', 'batches')}", counted(self.rows, "row")]
        if self.rejected is not None:
            parts.append(f"{self.rejected:,} rejected")
        if self.late is not None:
            parts.append(f"{self.late:,} late")
        if self.watermark is not None:
            parts.append(f"watermark {self.watermark:%Y-%m-%d %H:%M}")
        return ", ".join(parts)


class Progress(Protocol):
    """Whoever wants to know how far a run is."""

    def update(self, progress: QueryProgress) -> None:
        """Called after each batch with the totals of its query in this run."""


class Silent:
    """Tells nobody."""

    def update(self, progress: QueryProgress) -> None:
        """Nothing to do."""


@dataclass
class PlainLines:
    """A line now and then, for logs: at the first batch of a query and every few after it."""

    console: Console
    _last: dict[str, QueryProgress] = field(default_factory=dict)

    def update(self, progress: QueryProgress) -> None:
        """Print every so many batches."""
        self._last[progress.query] = progress
        if progress.batches % _PLAIN_EVERY == 1:
            self.console.print(progress.text(), highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Print where each query ended."""
        for progress in self._last.values():
            self.console.print(f"{progress.text()}, done", highlight=False, soft_wrap=True)


@dataclass
class LiveLines:
    """One line per query that is redrawn in place."""

    live: Live
    _last: dict[str, QueryProgress] = field(default_factory=dict)

    def update(self, progress: QueryProgress) -> None:
        """Redraw."""
        self._last[progress.query] = progress
        table = Table.grid(padding=(0, 2))
        for entry in self._last.values():
            table.add_row(*entry.text().replace(": ", ", ", 1).split(", "))
        self.live.update(table)


@contextmanager
def shown_on(console: Console) -> Iterator[Progress]:
    """Progress shown on `console` while the body runs: live where it is a terminal."""
    if console.is_terminal:
        with Live(console=console, refresh_per_second=4) as live:
            yield LiveLines(live)
        return
    lines = PlainLines(console)
    yield lines
    lines.close()
