"""A stream process at work: its phase, which batch runs since when, what the last ones brought, where one failed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime

from streaming.base import SinkError, StreamingError
from streaming.log import Batch
from streaming.operators import Written
from streaming.service.observer import Observer
from streaming.service.progress import Measure, latency
from streaming.service.pulse import Pulse
from streaming.service.status import Phase


class StopRequested(Exception):
    """Ends a query before its next batch; the batch is run again when the pipeline starts again."""


class Paused(Exception):
    """Ends a step or a delivery that would fail again: its operator or delivery pauses for a `reason`, nothing else."""

    def __init__(self, reason: StreamingError) -> None:
        super().__init__(str(reason))
        self.reason = reason


@dataclass(frozen=True)
class FailedBatch:
    """The first batch that failed, and what was raised in it."""

    query: str
    batch: int
    error: BaseException


class Watch(Observer):
    """Keeps what runs and what ended; its records may be read from any thread."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        super().__init__(now)
        self.stopping: set[str] = set()
        """Queries in which no further batch begins: a batch is never cut in two."""
        self.ended = False
        """True once no further batch begins in any query."""
        self.failed: FailedBatch | None = None
        self.phase: Phase = "starting"
        self.passed = now()
        """When the owner's loop came round, or its drain got on."""
        self.last_ended: dict[str, datetime] = {}
        """When the newest batch of each query ended."""
        self._running: dict[str, tuple[int, datetime]] = {}
        self._committed: dict[str, Measure] = {}
        self._measures: deque[Measure] = deque()

    def pulse(self) -> Pulse:
        """The pulse for the supervisor; it is taken from memory alone, so that nothing can hold it up."""
        return Pulse(at=self.now(), phase=self.phase, passed=self.passed, running=self.running())

    def end_all(self) -> None:
        """Let the batches that run end, and no other begin."""
        self.ended = True

    @contextmanager
    def during(self, query: str, number: int) -> Iterator[None]:
        """Watch one batch of a query, or step of an operator; it is measured if it commits something.

        Raises:
            StopRequested: no further one begins.
        """
        if self.ended or query in self.stopping:
            raise StopRequested(query)
        self._running[query] = (number, self.now())
        self._committed.pop(query, None)
        try:
            yield
            ended = self.now()
            if query in self._committed:
                self._measures.append(replace(self._committed.pop(query), ended=ended))
            self.last_ended[query] = ended
        except (SinkError, Paused):
            # A target that is away, and what pauses alone, fail nothing else: both are tried again.
            raise
        except BaseException as error:
            self.failed = self.failed or FailedBatch(query, number, error)
            raise
        finally:
            del self._running[query]

    def committed(self, query: str, written: Written, batch: Batch | None) -> None:
        """Note what the batch that runs in `query` has committed."""
        number, started = self._running[query]
        measure = Measure(
            query,
            number,
            started,
            started,
            written.rows,
            state_rows=written.state_rows,
            state_bytes=written.state_bytes,
            failures=written.failures,
        )
        if batch is not None:
            measure = replace(
                measure,
                number=batch.number,
                rejected=batch.rejected,
                late=sum((batch.late or {}).values()),
                watermark=batch.after.watermark,
                latency=latency(batch, self.now()),
                warned=batch.warned,
                reasons=batch.reasons,
            )
        self._committed[query] = measure

    def running(self) -> dict[str, tuple[int, datetime]]:
        """The batch that runs in each query, and since when."""
        return dict(self._running)

    def measured(self) -> list[Measure]:
        """The batches that ended since this was asked last."""
        return [self._measures.popleft() for _ in range(len(self._measures))]
