"""Progress of a run: its lines on a terminal, what a batch cost, how far clocks are apart, and when it hangs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.table import Table

from streaming.base import counted, interval
from streaming.declare import Operator, Pipeline
from streaming.log import Batch
from streaming.service.pulse import Pulse
from streaming.service.status import LastWords

_PLAIN_EVERY = 25
SILENT_AFTER = timedelta(seconds=60)
"""A process without a pulse for that long is frozen."""

_STARTS_WITHIN = timedelta(minutes=3)
"""The time that Python and Spark may take to start."""


@dataclass(frozen=True)
class QueryProgress:
    """The work of one query in this run; `late` and `watermark` are null where they mean nothing.

    `warned`: how often a valid row broke a rule that only warns.
    """

    query: str
    batches: int = 0
    rows: int = 0
    rejected: int | None = None
    late: int | None = None
    watermark: datetime | None = None
    warned: int = 0

    def after(
        self,
        rows: int,
        rejected: int | None = None,
        late: int | None = None,
        watermark: datetime | None = None,
        warned: int = 0,
    ) -> QueryProgress:
        """The progress after one more batch."""
        return replace(
            self,
            batches=self.batches + 1,
            rows=self.rows + rows,
            rejected=None if rejected is None else (self.rejected or 0) + rejected,
            late=None if late is None else (self.late or 0) + late,
            watermark=watermark or self.watermark,
            warned=self.warned + warned,
        )

    def text(self) -> str:
        """One plain line."""
        parts = [f"{self.query}: {counted(self.batches, 'batch', 'batches')}", counted(self.rows, "row")]
        if self.rejected is not None:
            parts.append(f"{self.rejected:,} rejected")
        if self.warned:
            parts.append(counted(self.warned, "warning"))
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


@dataclass(frozen=True)
class Skew:
    """By how much the watermark of the stream `behind` is less than that of `ahead`; `operator` reads both."""

    operator: str
    behind: str
    ahead: str
    by: timedelta


def widest_skew(pipeline: Pipeline, watermarks: Mapping[str, datetime]) -> Skew | None:
    """The greatest of all; None where no operator depends on several clocks, or none of these has a watermark yet."""
    skews = (skew_of(operator, watermarks) for operator in pipeline.operators)
    return max((skew for skew in skews if skew is not None), key=lambda skew: skew.by, default=None)


def skew_of(operator: Operator, watermarks: Mapping[str, datetime]) -> Skew | None:
    """That of one operator; None where it does not depend on several clocks, or one of these has no watermark yet."""
    marks = {stream.name: watermarks[stream.name] for stream in operator.follows if stream.name in watermarks}
    if not operator.joins_clocks or len(marks) < len(operator.follows) or len(marks) < 2:
        return None
    behind, ahead = min(marks, key=marks.__getitem__), max(marks, key=marks.__getitem__)
    return Skew(operator.name, behind, ahead, marks[ahead] - marks[behind])


def hang(pipeline: Pipeline, pulse: Pulse | None, age: timedelta, silence: timedelta) -> LastWords | None:
    """The hang of a process of `age`, whose last `pulse` came `silence` ago, in words; None if it does not hang.

    Slow storage is no hang: the pulse does not depend on it. Only a batch, the main loop, or a drain that does not get
    on for the pipeline's `hangs_after` is one.
    """
    if pulse is not None and silence > SILENT_AFTER:
        return LastWords(error=f"it has given no sign of life for {silence.total_seconds():.0f} s")
    if pulse is None or pulse.phase == "starting":
        return LastWords(error=f"it did not start within {_STARTS_WITHIN}") if age > _STARTS_WITHIN else None
    limit = interval(pipeline.hangs_after)
    for query, (batch, since) in pulse.running.items():
        if pulse.at - since > limit:
            return LastWords(
                batch=f"{pipeline.name}.{query} {batch}",
                error=f"the batch hangs: it has been running since {since:%H:%M:%S}",
            )
    if pulse.at - pulse.passed > limit:
        if pulse.phase == "running":
            return LastWords(error=f"its main loop has not come round since {pulse.passed:%H:%M:%S}")
        if pulse.phase == "draining":
            return LastWords(error=f"its drain has not got on since {pulse.passed:%H:%M:%S}")
    return None


@dataclass(frozen=True)
class Measure:
    """One batch of a log's query, or step of an operator, once it is committed.

    `latency`: median, 95th and 99th percentile in seconds, over the rows of a log batch, from the instant the source
    had them until they could be read in Delta. `number` is the batch's place in the log. `state_rows` and `state_bytes`
    are those of the table in which an operator keeps state, `failures` rows to which something outside gave no answer.
    `warned` and `reasons` are those of the log's `Batch`: rows that break a rule, by rule.
    What a batch or step does not have is None.
    """

    query: str
    batch: int
    started: datetime
    ended: datetime
    rows: int
    number: int | None = None
    rejected: int | None = None
    late: int | None = None
    watermark: datetime | None = None
    latency: tuple[float, float, float] | None = None
    state_rows: int | None = None
    state_bytes: int | None = None
    failures: int = 0
    warned: Mapping[str, int] = field(default_factory=dict)
    reasons: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_of_log(self) -> bool:
        """True if the batch went into a log, not into an operator's table."""
        return self.number is not None

    @property
    def seconds(self) -> float:
        """The seconds that the batch took."""
        return (self.ended - self.started).total_seconds()


def latency(batch: Batch, visible: datetime) -> tuple[float, float, float] | None:
    """Median, 95th and 99th percentile of the rows' way from source to Delta, in seconds."""
    if not batch.source_times:
        return None
    p50, p95, p99 = (max(0.0, (visible - time).total_seconds()) for time in batch.source_times)
    return p50, p95, p99
