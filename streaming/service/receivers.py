"""The receivers of a pipeline: each at work, all in one process, and the keeper of that process.

A receiver connects, takes what comes, lands it, and connects again, until it shall stop. The process is
`python -m streaming.service receive PIPELINE SUPERVISOR`.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, suppress
from datetime import datetime, timedelta
from pathlib import Path
from threading import Event
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from tenacity import RetryCallState, Retrying, retry_if_exception_type, retry_if_not_exception_type, sleep_using_event
from tenacity import stop_when_event_set as stop_when_set

from streaming.base import LeaseError, ReceiverError, SourceError, interval, utc_now
from streaming.declare import SUBSCRIPTIONS, ExponentialBackoff, Failure, Pipeline, Receiver, Stream, find_pipeline
from streaming.lake import Lake, Settings
from streaming.service.lease import Lease, holder_of, take_lease
from streaming.service.logs import RUN, configure_logs, current_run, new_run
from streaming.service.receiver_status import ReceiverPlace, ReceiverReport, make_landing
from streaming.service.retries import first_wait, growing_wait, next_wait
from streaming.service.status import ReceiverStatus
from streaming.sources import LandingFolder, Received, Reception
from streaming.tables import delta, storage

_LOOKS_EVERY = 0.5
_LEASE_TRIED_EVERY = 5.0

_log = logging.getLogger("tidemark")
_ENDS_WITHIN = 15.0
_KEPT_FAILURES = 50
_LOOKS_FOR_STOP_EVERY = 0.25
_STEADY = 10.0
"""Seconds after which a connection that brought nothing has stood all the same, so that the next is no repetition."""

_LOOKS_FOR_VALUES_EVERY = 0.5
_AT_ONCE = 100
_REJECTED = "_rejected"


class Receiving:
    """Runs a receiver of a pipeline until `stop` is set, and then lands what came.

    What fails is tried again for ever, later each time: a source that is away, a full disk, whatever a connector
    raises. Rows that came are written before more are taken, so a disk that is full holds up the source.
    """

    def __init__(
        self,
        lake: Lake,
        pipeline: Pipeline,
        receiver: Receiver,
        stop: Event,
        on_status: Callable[[ReceiverStatus], None] = lambda status: None,
    ) -> None:
        self._lake = lake
        self._place = ReceiverPlace.of(pipeline, receiver)
        self._receiver = receiver
        self._connector = receiver.connector
        self._stop = stop
        self._report = ReceiverReport(lake, self._place, receiver, on_status, utc_now)
        self._every = interval(receiver.every).total_seconds()
        self._subscribing: Subscribing | None = None
        self._folder: LandingFolder | None = None
        self._lease: Lease | None = None

    def run(self, wait: float = 1.0) -> None:
        """Receive until it shall stop; waits `wait` seconds for another process that is just ending.

        Raises:
            LeaseError: another process runs this receiver, or has taken it over.
            SourceError: the landing folder is not on this machine.
        """
        with ExitStack() as held:
            try:
                self._lease = held.enter_context(take_lease(self._lake, self._place, "receive", wait=wait))
            except LeaseError as error:
                raise self._run_elsewhere() or error from None
            try:
                self._again_and_again(self._open)
                while not self._stop.is_set():
                    self._again_and_again(self._receive)
            finally:
                self._end()

    def _end(self) -> None:
        """Land what came; what the disk does not take stays in the hidden file, for the next start."""
        lost = self._lease is not None and self._lease.lost.is_set()
        try:
            if self._folder is not None and not lost:
                self._land(self._folder)
        except OSError as error:
            _log.warning("%s: what came could not be landed, and is by the next start (%s)", self._receiver.name, error)
        except ReceiverError as error:
            _log.warning("%s: %s", self._receiver.name, error)
        self._report.change("stopped")

    def _run_elsewhere(self) -> LeaseError | None:
        holder = holder_of(self._lake, self._place)
        if holder is None:
            return None
        return LeaseError(
            f"receiver {self._receiver.name!r} of pipeline {self._place.pipeline!r} is run by {holder} on this lake "
            f"({self._lake.root}) already; let it go on, or end it (`tidemark down {self._place.pipeline}` ends what "
            "`tidemark up` has started). Nothing was received."
        )

    def _open(self) -> None:
        landing = make_landing(self._lake, self._receiver)
        self._folder = LandingFolder(
            landing,
            self._receiver.name,
            completes=self._connector.guarantee == "at most once",
            to_cursor=self._connector.guarantee == "exactly once",
            of=self._connector.cursor_of,
            now=utc_now,
        )
        if self._folder.landed_before:
            self._report.update(left_behind=self._folder.landed_before)
            _log.warning(
                "%s: landed %s rows that a process before this one left behind",
                self._receiver.name,
                self._folder.landed_before,
            )
        if self._receiver.subscriptions is not None:
            self._subscribing = Subscribing(self._lake, self._receiver, utc_now)

    def _receive(self) -> None:
        """One connection, until it ends or the receiver shall stop.

        Raises:
            Exception: whatever ended it, where it never stood.
        """
        assert self._folder is not None
        began, before = time.monotonic(), self._report.status.rows
        steady, has_cursor = began, False
        self._report.connect()
        reception = Reception(self._folder.cursor) if self._subscribing is None else self._asking(self._subscribing)
        try:
            with closing(self._connector.receive(reception)) as receiving:
                for received in receiving:
                    if received.stands:
                        self._report.change("receiving")
                    self._take(self._folder, received)
                    has_cursor = has_cursor or received.cursor is not None
                    if received.stands and not self._folder.open_rows:
                        steady = time.monotonic()
                    if self._stop.is_set():
                        # While the connection stands, so that a source that waits for a word gets it.
                        self._land(self._folder)
                        return
            raise ReceiverError(f"{self._connector.address} has nothing more to give.")
        except LeaseError:
            raise
        except Exception as error:
            # What was not landed, or has no cursor, comes again.
            if self._connector.guarantee == "at least once":
                self._give_back(self._folder)
            else:
                self._forget(self._folder)
            self._report.discard(self._report.status.unlanded - self._folder.rows)
            # Time that went into rows without a cursor, or into waiting for an answer that did not come, is lost.
            stood = self._report.status.rows > before or has_cursor or steady - began > _STEADY
            self._report.update(reconnects=self._report.status.reconnects + stood)
            if not stood:
                raise
            self._report.wait(error)
            self._rest(first_wait(error))

    def _asking(self, subscribing: Subscribing) -> Reception:
        assert self._folder is not None
        portion = subscribing.requests()
        self._report.update(requested=0)

        def requests() -> list[str]:
            messages = list(portion())
            self._report.update(requested=self._report.status.requested + len(messages))
            return messages

        return Reception(self._folder.cursor, requests)

    def _take(self, folder: LandingFolder, received: Received) -> None:
        if received.rows or received.cursor is not None or received.landed is not None:
            self._durably(lambda: folder.add(received))
        status = self._report.status
        self._report.update(rows=status.rows + len(received.rows), refused=status.refused + received.refused)
        if received.behind is not None:
            self._report.update(behind=received.behind)
        if received.refused:
            _log.warning("%s: refused %s rows, as too large or cut off", self._receiver.name, received.refused)
        if received.lost:
            self._report.lost(received.lost)
        self._land_if_due(folder, waits=received.waits)
        self._report.write_if_due()

    def _land_if_due(self, folder: LandingFolder, waits: bool = False) -> None:
        if self._lease is not None and self._lease.lost.is_set():
            raise LeaseError(f"another machine has taken over receiver {self._receiver.name!r}; it goes on there.")
        full = folder.rows >= self._receiver.rows_per_file or folder.size >= self._receiver.bytes_per_file
        if not folder.open_rows and (waits or full or folder.age >= self._every):
            self._land(folder)

    def _give_back(self, folder: LandingFolder) -> None:
        """Throw away what comes again, as the source has heard of no landing; all lands if some of it does not."""
        if folder.must_land:
            rows = folder.rows
            with suppress(ReceiverError):
                self._durably(lambda: self._landed(folder.land(), rows))
        folder.discard()

    def _forget(self, folder: LandingFolder) -> None:
        rows = folder.open_rows
        self._durably(folder.forget)
        self._report.discard(rows)

    def _land(self, folder: LandingFolder) -> None:
        self._forget(folder)
        rows = folder.rows
        self._durably(lambda: self._landed(folder.land(), rows))
        folder.tell()

    def _landed(self, file: Path | None, rows: int) -> None:
        if file is not None:
            self._report.landed(rows)
            _log.debug("%s: landed %s rows as %s", self._receiver.name, rows, file)

    def _durably(self, write: Callable[[], None]) -> None:
        """Write, however long it takes until the disk takes it; at the end it is tried once."""
        Retrying(
            retry=retry_if_exception_type(OSError),
            wait=growing_wait(),
            sleep=sleep_using_event(self._stop),
            stop=stop_when_set(self._stop),
            before_sleep=self._told,
            reraise=True,
        )(write)

    def _again_and_again(self, attempt: Callable[[], None]) -> None:
        """Try until it succeeds, or the receiver shall stop."""
        retrying = Retrying(
            retry=retry_if_exception_type(Exception) & retry_if_not_exception_type((LeaseError, SourceError)),
            wait=next_wait,
            sleep=self._rest,
            stop=stop_when_set(self._stop),
            before_sleep=self._told,
            reraise=True,
        )
        try:
            retrying(attempt)
        except (LeaseError, SourceError):
            raise
        except Exception as error:
            _log.warning("%s: stops while it waits (%s)", self._receiver.name, error)

    def _told(self, attempt: RetryCallState) -> None:
        assert attempt.outcome is not None
        self._report.wait(attempt.outcome.exception())

    def _rest(self, seconds: float) -> None:
        """Wait, and land meanwhile what is due."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not self._stop.wait(min(_LOOKS_FOR_STOP_EVERY, left)):
            if self._folder is not None:
                self._land_if_due(self._folder)
            self._report.write_if_due()


class Subscribing:
    """The values that a receiver with subscriptions asks for, in the order in which it came upon them.

    A value is committed to `<receiver>_subscriptions` before it is asked for. What is read of the other table are its
    files that were not there before; that compaction writes rows again into new ones does no harm.
    """

    def __init__(self, lake: Lake, receiver: Receiver, now: Callable[[], datetime]) -> None:
        assert receiver.subscriptions is not None
        self._declared = receiver.subscriptions
        of = self._declared.of
        self._source = lake.log(of) if isinstance(of, Stream) else lake.table(of)
        self._uri = lake.table(receiver, SUBSCRIPTIONS)
        self._now = now
        self._table: DeltaTable | None = None
        self._read: set[str] = set()
        self._looked_at = 0.0
        self._looked_at_version: int | None = None
        self._failed = ""
        self.values: list[str] = self._stored()
        """Each value in JSON."""

    def requests(self) -> Callable[[], Sequence[str]]:
        """For one connection: what is to be asked for on it, a portion with each call, new values last."""
        asked = 0

        def portion() -> Sequence[str]:
            nonlocal asked
            self._look_if_due()
            values = self.values[asked : asked + _AT_ONCE]
            asked += len(values)
            return [self._declared.message_for(value) for value in values]

        return portion

    def _stored(self) -> list[str]:
        table = delta.open_table(self._uri)
        if table is None:
            return []
        rows = delta.contents(table)
        values = map(_in_json, rows[self._declared.column].to_pylist())
        return [value for _, value in sorted(zip(rows["first_seen"].to_pylist(), values, strict=True))]

    def _look_if_due(self) -> None:
        if time.monotonic() - self._looked_at < _LOOKS_FOR_VALUES_EVERY:
            return
        try:
            self._look()
            self._failed = ""
        # A table that cannot be read now is read later; the connection must not end with it.
        except Exception as error:
            if str(error) != self._failed:
                _log.warning("%s cannot be read for what to ask for, and is tried again (%s)", self._source, error)
            self._failed = str(error)
        self._looked_at = time.monotonic()

    def _look(self) -> None:
        """Take up the values of files that are new."""
        table = self._newest()
        if table is not None and table.version() != self._looked_at_version:
            paths = table.get_add_actions()["path"].to_pylist()
            # Of files that are there no more nobody asks again, and there are ever more of them.
            self._read &= {*paths}
            for path in (path for path in paths if path not in self._read):
                self._take_up(self._column_in(table, path))
                self._read.add(path)
            self._looked_at_version = table.version()

    def _newest(self) -> DeltaTable | None:
        if self._table is None:
            self._table = delta.open_table(self._source)
        else:
            delta.refresh(self._table)
        return self._table

    def _column_in(self, table: DeltaTable, path: str) -> pa.Array:
        """The values in one file of the table, each once, of valid rows only."""
        column = self._declared.column
        with storage.files_of(table).open_input_file(unquote(path)) as handle:
            file = pq.ParquetFile(handle)
            rows = file.read([name for name in (column, _REJECTED) if name in file.schema_arrow.names])
        if _REJECTED in rows.column_names:
            rows = rows.filter(rows[_REJECTED].is_null())
        # A file from before the column was added has none.
        return rows[column].unique() if column in rows.column_names else pa.array([], pa.string())

    def _take_up(self, column: pa.Array) -> None:
        subscriptions = set(self.values)
        candidates = {_in_json(value): value for value in column.to_pylist() if value is not None}
        if new := sorted(candidates.keys() - subscriptions):
            self._store(pa.array([candidates[value] for value in new], column.type))
            self.values += new

    def _store(self, values: pa.Array) -> None:
        first_seen = pa.array([self._now()] * len(values), pa.timestamp("us", "UTC"))
        rows = pa.table({self._declared.column: values, "first_seen": first_seen})
        about = f"The values of {self._declared.column} that were subscribed to, and when each was first seen"
        write_deltalake(delta.opened_or_created(self._uri, rows.schema, description=about), rows, mode="append")


def _in_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def receive(
    lake: Lake,
    pipeline: Pipeline,
    receivers: Sequence[Receiver],
    stop: Event,
    on_status: Callable[[ReceiverStatus], None] = lambda status: None,
    each: Callable[[], None] = lambda: None,
) -> None:
    """Run receivers of a pipeline, each in a thread of its own, until `stop` is set; `each` is called now and then.

    Raises:
        LeaseError: another process runs one of them; the others are stopped.
        SourceError: a landing folder is not on this machine; the others are stopped.
    """
    with ThreadPoolExecutor(len(receivers), thread_name_prefix="receiver") as threads:
        works = [Receiving(lake, pipeline, receiver, stop, on_status) for receiver in receivers]
        _await([threads.submit(work.run) for work in works], stop, each)


def _await(running: Sequence[Future[None]], stop: Event, each: Callable[[], None]) -> None:
    try:
        while not stop.is_set() and not any(ended.done() for ended in running):
            each()
            wait(running, _LOOKS_EVERY, FIRST_EXCEPTION)
    finally:
        stop.set()
    for ended in running:
        ended.result()


def receive_main(name: str, supervisor: str) -> None:
    """Run all receivers of the pipeline `name` until TERM, or until the supervisor, by its process, is gone."""
    settings = Settings()
    configure_logs(settings, name, os.environ.get(RUN) or new_run())
    stop = Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipeline = find_pipeline(name)

    def guard() -> None:
        if os.getppid() != int(supervisor) and not stop.is_set():
            _log.warning("the supervisor is gone, stopping the receivers")
            stop.set()

    def run(receiver: Receiver) -> None:
        last_reason = ""
        while not stop.is_set():
            try:
                Receiving(settings.lake, pipeline, receiver, stop).run()
            except LeaseError as error:
                # Somebody receives by hand; once they stop, this goes on.
                if str(error) != last_reason:
                    _log.warning("%s", error)
                last_reason = str(error)
                stop.wait(_LEASE_TRIED_EVERY)

    with ThreadPoolExecutor(len(pipeline.receivers), thread_name_prefix="receiver") as threads:
        _await([threads.submit(run, receiver) for receiver in pipeline.receivers], stop, guard)


class ReceiverKeeper:
    """Starts the receivers of `pipeline`, if it has any, in a process that speaks to `output`, and starts it again.

    It is independent of the stream process: what cannot be read again has to be received also while that is paused,
    restarts, or drains.
    """

    def __init__(self, lake: Lake, pipeline: Pipeline, output: Path) -> None:
        self._lake = lake
        self._pipeline = pipeline
        self._output = output
        self._process: subprocess.Popen[bytes] | None = None
        self._started = utc_now()
        self._next_start = utc_now()
        self._failures: list[Failure] = []

    @property
    def pid(self) -> int | None:
        """The process that runs; None where none does."""
        return None if self._process is None else self._process.pid

    def keep(self) -> None:
        """Start the process if it is to run and does not; to be called a few times a second."""
        if not self._pipeline.receivers:
            return
        if self._process is not None and (code := self._process.poll()) is not None:
            self._process = None
            self._failed(f"the process of the receivers ended with code {code}")
        if self._process is None and utc_now() >= self._next_start:
            self._start()

    def end(self) -> None:
        """Let the receivers land what they have, and end; a process that does not within a while is killed."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            _log.warning("killing the process of the receivers, which did not end within %.0f s", _ENDS_WITHIN)
            self._process.kill()
            self._process.wait()
        self._process = None

    def _start(self) -> None:
        self._started = utc_now()
        try:
            self._output.parent.mkdir(parents=True, exist_ok=True)
            with self._output.open("ab") as output:
                self._process = subprocess.Popen(
                    [sys.executable, "-u", "-m", "streaming.service", "receive", self._pipeline.name, str(os.getpid())],
                    env={**os.environ, "TIDEMARK_HOME": self._lake.root, RUN: current_run()},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    # Ctrl-C is for the supervisor.
                    start_new_session=True,
                )
        except OSError as error:
            self._failed(f"the process of the receivers cannot be started: {error}")

    def _failed(self, error: str) -> None:
        ran = utc_now() - self._started
        self._failures = [*self._failures, Failure(utc_now(), ran, error)][-_KEPT_FAILURES:]
        wait = ExponentialBackoff().wait(self._failures) or timedelta()
        self._next_start = utc_now() + wait
        _log.warning("%s; it is started again in %.0f s", error, wait.total_seconds())
