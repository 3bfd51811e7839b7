"""The stream process: one driver with every query of a pipeline, under a supervisor that it does not outlive.

`python -m streaming.service process PIPELINE SUPERVISOR LAST_WORDS PULSE` is started by the supervisor alone, which
hands over the lease, its process number, and two pipes: one for why the process ends, one for its sign of life.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from contextlib import suppress
from typing import NoReturn

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from streaming.base import (
    ChangedDeclaration,
    DeclarationError,
    FencedError,
    JarError,
    JavaError,
    LogError,
    SettingsError,
    StreamingError,
    interval,
    utc_now,
)
from streaming.declare import Pipeline, find_pipeline
from streaming.lake import Lake, Settings
from streaming.log import QUERY
from streaming.service.continuous import Continuous, Ending
from streaming.service.logs import RUN, configure_logs, new_run
from streaming.service.progress_table import ProgressTable
from streaming.service.pulse import BEATS_EVERY, Pulse, send_pulse
from streaming.service.query_errors import ingested_stream, transient_cause
from streaming.service.repeated import Repeated
from streaming.service.status import PROCESS, ControlFolder, LastWords, ProcessStatus, first_status
from streaming.spark import jars_of, start_session

STOP, DRAIN = signal.SIGTERM, signal.SIGUSR1
ORPHAN_STOPS_WITHIN = 10.0
"""Seconds that a process without a supervisor has to end its batch."""

_SUPERVISOR_LOOKED_AT_EVERY = 0.5
_LOGGED_EVERY = 60.0
_TOLD_AT_MOST = 5_000
"""Characters of an error, and of an origin: together they fit the pipe of 64 KiB, whose reader waits for the end."""
_FINAL = (DeclarationError, ChangedDeclaration, SettingsError, JavaError, JarError, LogError, FencedError)
"""Errors that starting again cannot cure: declaration, tables and checkpoints do not agree."""

_log = logging.getLogger("tidemark")


class StreamProcess:
    """Runs a pipeline until a signal ends it: TERM stops at the next boundary of a batch, USR1 drains."""

    def __init__(self, lake: Lake, pipeline: Pipeline, supervisor: int, last_words: int, pulse: int) -> None:
        self._lake = lake
        self._pipeline = pipeline
        self._supervisor = supervisor
        self._last_words_to = last_words
        self._control = ControlFolder(lake, pipeline)
        self._ending: Ending | None = None
        self._gone_by = math.inf
        self._wake = threading.Event()
        self._spark: SparkSession | None = None
        self._continuous: Continuous | None = None
        self._started = utc_now()
        self._pulse = Repeated(f"{pipeline.name}: pulse", BEATS_EVERY, lambda: send_pulse(pulse, self._state()))
        self._logged_at = 0.0

    def run(self) -> int:
        """The exit code: 0 where the end was asked for, 1 after a failure, told in the control folder."""
        self._listen()
        threading.Thread(target=self._guard, name="guard", daemon=True).start()
        self._pulse.begin()
        try:
            self._write_status(first_status(self._control, self._started))
            for group in dict.fromkeys(group for stream in self._pipeline.streams for group in stream.source.jars):
                jars_of(group, _log.info)
            self._spark = start_session()
            # Spark has put handlers of its own in place.
            self._listen()
            with ProgressTable(self._lake, self._pipeline) as progress:
                self._continuous = Continuous(
                    self._spark, self._lake, self._pipeline, utc_now, progress.add, self._write_status
                )
                _log.info("Spark is up, the queries start")
                self._continuous.run(lambda: self._ending, self._wake)
        # Whatever ends the process is told to its supervisor, which decides what comes next.
        except Exception as error:
            self._explain_end(error)
            return 1
        _log.info("ended as asked (%s)", self._ending)
        return 0

    def _state(self) -> Pulse:
        """The pulse as of now; nothing here may touch the storage, which can be slow for longer than silence is."""
        if self._continuous is None:
            return Pulse(at=utc_now(), phase="starting", passed=self._started)
        return self._continuous.watch.pulse()

    def _listen(self) -> None:
        signal.signal(STOP, lambda *_: self._end("stop"))
        signal.signal(DRAIN, lambda *_: self._end("drain"))
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _end(self, ending: Ending) -> None:
        if ending == "stop":
            self._be_gone_within(interval(self._pipeline.stop_within).total_seconds())
        self._ending = ending if self._ending != "stop" else "stop"
        self._wake.set()

    def _be_gone_within(self, seconds: float) -> None:
        self._gone_by = min(self._gone_by, time.monotonic() + seconds)

    def _guard(self) -> None:
        """No process outlives its supervisor, its JVM or the deadline of its stop, whatever else hangs."""
        orphaned = False
        while True:
            time.sleep(_SUPERVISOR_LOOKED_AT_EVERY)
            if not orphaned and os.getppid() != self._supervisor:
                orphaned = True
                _log.warning("the supervisor is gone, stopping")
                self._end("stop")
                self._be_gone_within(0.0 if self._spark is None else ORPHAN_STOPS_WITHIN)
            if (code := _jvm_exit(self._spark)) is not None:
                self._kill_group(f"the JVM ended with code {code}")
            if time.monotonic() > self._gone_by:
                late = f"it was told to stop and did not end in time (stop_within is {self._pipeline.stop_within!r})"
                self._kill_group("its supervisor is gone" if orphaned else late)

    def _kill_group(self, why: str) -> None:
        # Nobody may be left to read them, and the group is to go all the same.
        with suppress(BrokenPipeError):
            self._last_words(LastWords(error=why))
        os.killpg(os.getpgid(0), signal.SIGKILL)

    def _explain_end(self, error: Exception) -> None:
        failed = None if self._continuous is None else self._continuous.watch.failed
        if isinstance(error, Py4JError | OSError) and (code := _jvm_exit(self._spark, wait=2.0)) is not None:
            self._last_words(LastWords(error=f"the JVM ended with code {code}"))
            return
        batch = "" if failed is None else f"{self._pipeline.name}.{failed.query} {failed.batch}"
        raised = error if failed is None else failed.error
        outside = transient_cause(raised)
        self._last_words(
            LastWords(
                batch=batch,
                origins="" if failed is None else origins(self._lake, self._pipeline, failed.query, failed.batch),
                error=outside or _first_line(raised),
                final=outside is None and isinstance(raised, _FINAL),
                outside=outside is not None,
            ),
            "" if outside else _where_raised(raised),
        )

    def _last_words(self, words: LastWords, where: str = "") -> None:
        query, _, batch = words.batch.removeprefix(f"{self._pipeline.name}.").rpartition(" ")
        _log.error("%s%s", words.error, where, extra={"query": query, "batch": int(batch)} if batch else None)
        # Through a pipe: on a disk that is full no file would take them.
        os.write(self._last_words_to, words.model_dump_json().encode())

    def _write_status(self, status: ProcessStatus) -> None:
        self._control.write(PROCESS, status)
        if time.monotonic() - self._logged_at >= _LOGGED_EVERY and status.phase == "running":
            self._logged_at = time.monotonic()
            _log.info(
                "batch %s of the log, %.0f rows/s, watermark %s, %s",
                "-" if status.newest_batch is None else status.newest_batch,
                status.input_rate,
                "-" if status.watermark is None else f"{status.watermark:%Y-%m-%d %H:%M:%S}",
                status.waiting or "backlog not counted yet",
            )


def origins(lake: Lake, pipeline: Pipeline, query: str, batch: int) -> str:
    """The origin of a batch of the log's query, for a person to read; empty for another query's."""
    stream = ingested_stream(pipeline, query)
    if stream is None:
        return ""
    try:
        return stream.source.describe_batch(lake.checkpoint(stream, QUERY), batch)[:_TOLD_AT_MOST]
    except Exception as error:
        # The storage may be what failed; the cause is told, the place is left open.
        return f"unknown ({type(error).__name__})"


def _first_line(error: BaseException) -> str:
    """The line that says what; Spark's errors go on with the plan, and Py4J's begin with the call."""
    text = str(error).strip()[:_TOLD_AT_MOST] or type(error).__name__
    if isinstance(error, StreamingError):
        return text
    if isinstance(error, Py4JJavaError):
        return str(error.java_exception.toString()).splitlines()[0][:_TOLD_AT_MOST]
    return f"{type(error).__name__}: {text.splitlines()[0]}"


def _where_raised(error: BaseException) -> str:
    """The lines of code that an error passed which nobody foresaw; empty for others, whose text says what to do.

    Without its text, which may quote a row.
    """
    if isinstance(error, StreamingError | Py4JError | PySparkException):
        return ""
    return "\n" + "".join(traceback.format_tb(error.__traceback__)).rstrip()


def _jvm_exit(spark: SparkSession | None, wait: float = 0.0) -> int | None:
    """The exit code of the session's JVM, or None if it still lives after `wait` seconds."""
    process = None if spark is None else getattr(spark.sparkContext._gateway, "proc", None)
    if process is None:
        return None
    try:
        return int(process.wait(wait))
    except subprocess.TimeoutExpired:
        return None


def process_main(name: str, supervisor: str, last_words: str, pulse: str) -> NoReturn:
    """Run the pipeline `name` under the process that started this one."""
    settings = Settings()
    configure_logs(settings, name, os.environ.get(RUN) or new_run())
    code = StreamProcess(settings.lake, find_pipeline(name), int(supervisor), int(last_words), int(pulse)).run()
    logging.shutdown()
    sys.stderr.flush()
    # Spark's own way out waits for threads that a failed query may have left running.
    os._exit(code)
