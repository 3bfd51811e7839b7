"""Deliveries of a running pipeline: each goes its own pace, and a target that is away holds up nobody else."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from threading import Event

from pyspark.sql import SparkSession
from tenacity import RetryCallState, Retrying, retry_if_exception_type, sleep_using_event, stop_after_delay
from tenacity import stop_when_event_set as stop_when_set

from streaming.base import FencedError, OperatorError, ProgressError, QueryFailed, SinkError, StreamingError
from streaming.declare import Pipeline
from streaming.deliveries import DeliveryRuntime
from streaming.lake import Lake
from streaming.service.observer import Observer
from streaming.service.query_errors import explained
from streaming.service.retries import next_wait
from streaming.service.watch import Paused

_LOOKED_AT_EVERY, _WHILE_ROWS_WAIT, _WHILE_PAUSED = 5.0, 0.25, 10.0
_PATIENCE = 10.0
"""Seconds for which a target that is away is tried, where the process is about to end."""


@dataclass(frozen=True)
class Waiting:
    """Why a delivery waits for its target, and since when."""

    since: datetime
    why: str


class Delivering:
    """Runs the deliveries of a pipeline; the caller holds its lease.

    `observer` has the clock that they go by, and follows each attempt and each batch that arrived.
    """

    def __init__(self, spark: SparkSession, lake: Lake, pipeline: Pipeline, observer: Observer) -> None:
        # Dead letters come of what is delivered before.
        ordered = sorted(pipeline.deliveries, key=lambda delivery: delivery.depth)
        self.runtimes = tuple(DeliveryRuntime(delivery, lake, observer.now, pipeline.name) for delivery in ordered)
        self.paused: dict[str, StreamingError] = {}
        """Why a delivery does not go on until somebody says what is meant, by its name."""
        self.waiting: dict[str, Waiting] = {}
        """Deliveries whose target is away, by their names."""
        self._spark = spark
        self._observer = observer
        self._news = {runtime.delivery.name: Event() for runtime in self.runtimes}

    def tell(self) -> None:
        """Something was committed that may be delivered."""
        for news in self._news.values():
            news.set()

    def run(self, runtime: DeliveryRuntime, stop: Event) -> None:
        """Deliver what is due, on and on, until `stop` is set."""
        name = runtime.delivery.name
        while not stop.is_set():
            self._news[name].clear()
            self.deliver(runtime, stop)
            if name in self.paused:
                self._pause(runtime, stop)
            else:
                self._news[name].wait(_WHILE_ROWS_WAIT if runtime.has_rows_waiting else _LOOKED_AT_EVERY)
        runtime.forget()

    def deliver(
        self, runtime: DeliveryRuntime, stop: Event, *, all_of_it: bool = False, patience: float | None = None
    ) -> bool:
        """Deliver what is due, or `all_of_it`; False where it waits for its target or is paused.

        A target that is away is tried again until `stop` is set, or for `patience` seconds.

        Raises:
            FencedError: another process has taken over.
        """
        name = runtime.delivery.name
        while not stop.is_set():
            generation = runtime.generation
            try:
                with explained(runtime.delivery):
                    number = runtime.next_batch(self._spark, all_of_it=all_of_it)
                    self.paused.pop(name, None)
                    if number is None:
                        self.waiting.pop(name, None)
                        return True
                    if not self._send(runtime, number, stop, patience):
                        return False
            except Paused as paused:
                self.paused[name] = paused.reason
                return False
            except (OperatorError, ProgressError, QueryFailed) as refused:
                self.paused[name] = refused
                return False
            except FencedError:
                runtime.forget()
                # `redeliver` begins a new generation while the pipeline runs.
                if generation is None or runtime.generation in (None, generation):
                    raise
        return False

    def deliver_all(self, only: str | None = None, stop: Event | None = None) -> None:
        """Deliver everything that is there, of all or of one, until `stop` is set.

        A target that stays away is left for the next start.
        """
        for runtime in (each for each in self.runtimes if only in (None, each.delivery.name)):
            self.deliver(runtime, stop or Event(), all_of_it=True, patience=_PATIENCE)
            runtime.forget()

    def _send(self, runtime: DeliveryRuntime, number: int, stop: Event, patience: float | None) -> bool:
        name = runtime.delivery.name
        ends = stop_when_set(stop) if patience is None else stop_when_set(stop) | stop_after_delay(patience)
        retrying = Retrying(
            retry=retry_if_exception_type(SinkError),
            wait=next_wait,
            sleep=sleep_using_event(stop),
            stop=ends,
            before_sleep=lambda attempt: self._told(runtime, attempt),
            reraise=True,
        )
        try:
            retrying(self._send_once, runtime, number)
        except SinkError as away:
            self._note(name, away)
            runtime.forget()
            return False
        self.waiting.pop(name, None)
        return True

    def _send_once(self, runtime: DeliveryRuntime, number: int) -> None:
        name = runtime.delivery.name
        with self._observer.during(name, number):
            try:
                with explained(runtime.delivery):
                    written = runtime.deliver(self._spark)
            except (OperatorError, ProgressError, QueryFailed) as refused:
                raise Paused(refused) from refused
            self._observer.committed(name, written, None)

    def _told(self, runtime: DeliveryRuntime, attempt: RetryCallState) -> None:
        assert attempt.outcome is not None
        self._note(runtime.delivery.name, attempt.outcome.exception())
        runtime.disconnect()

    def _note(self, name: str, away: BaseException | None) -> None:
        before = self.waiting.get(name)
        self.waiting[name] = Waiting(self._observer.now() if before is None else before.since, str(away))

    def _pause(self, runtime: DeliveryRuntime, stop: Event) -> None:
        """Until somebody has said what is meant, which is looked for now and then."""
        stop.wait(_WHILE_PAUSED)
        runtime.forget()
