"""The lines of a stream's log: as text, or as JSON for a central index."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from types import TracebackType
from uuid import uuid4

from pyspark.logger import PySparkLogger

from streaming.base import shown
from streaming.lake import Settings

PIPELINE, RUN = "TIDEMARK_LOG_PIPELINE", "TIDEMARK_LOG_RUN"
"""Variables by which a process and its JVM know what their lines are about."""

_TEXT = "%(asctime)s %(levelname)s pipeline=%(pipeline)s run=%(run)s query=%(query)s batch=%(batch)s %(message)s"

_BYPASSING = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_NONE = "-"
"""Stands for a run, a query or a batch where a line is about none."""

_run: ContextVar[str] = ContextVar("run", default="")
_batch: ContextVar[tuple[str, int] | None] = ContextVar("batch", default=None)


def configure_logs(settings: Settings, pipeline: str, run: str = _NONE) -> None:
    """From now on this process writes lines about a run of a pipeline to stderr, from the level of the settings on.

    Libraries write warnings and errors only. Spark's JVM, once it is started, writes the same kind of lines.
    """
    os.environ[PIPELINE], os.environ[RUN] = pipeline, run
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if settings.log_format == "json" else TextLines(_TEXT))
    handler.addFilter(About(pipeline, run))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("tidemark").setLevel(settings.log_level)
    # It prints the trace of every failed batch, which Spark prints anyway.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    # It prints a trace of every attempt to connect, of which a receiver tells in a line.
    logging.getLogger("pika").setLevel(logging.CRITICAL)
    # PySpark gives these a handler of their own.
    for name in _BYPASSING:
        logger = PySparkLogger.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
    logging.captureWarnings(True)
    sys.excepthook = _log_uncaught


class TextLines(logging.Formatter):
    """A record as text. No message, which may quote what came from outside, looks like a line of its own."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line; further lines of the message are indented."""
        record.message = shown(record.message).replace("\n", "\n    ")
        return super().formatMessage(record)


class JsonLines(logging.Formatter):
    """A record as one JSON object on one line; `trace` is there where an error is."""

    def format(self, record: logging.LogRecord) -> str:
        """The line: `query` and `batch` are null outside a batch."""
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            **{name: _known(getattr(record, name, _NONE)) for name in ("pipeline", "run", "query", "batch")},
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["trace"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)


def _known(value: object) -> object:
    return None if value == _NONE else value


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    logging.getLogger("tidemark").critical("ended by an error: %s", error, exc_info=(kind, error, trace))


def new_run() -> str:
    """The id of one run of a stream process, from its start to its end."""
    return uuid4().hex[:12]


def begin_run(run: str) -> None:
    """Mark all that this thread logs from now on as of that run: its supervisor sees many."""
    _run.set(run)


def current_run() -> str:
    """The run that this thread has begun; empty before the first one."""
    return _run.get()


@contextmanager
def in_batch(query: str, number: int) -> Iterator[None]:
    """Mark all that this thread logs in the body as of this batch of a query, or step of an operator."""
    token = _batch.set((query, number))
    try:
        yield
    finally:
        _batch.reset(token)


class About(logging.Filter):
    """Lets every record pass, and says what it is about: `pipeline`, `run`, and of a batch `query` and `batch`.

    A record that was given a query and a batch of its own keeps them.
    """

    def __init__(self, pipeline: str, run: str) -> None:
        super().__init__()
        self._pipeline = pipeline
        self._run = run

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields."""
        query, batch = _batch.get() or (_NONE, _NONE)
        about = {"pipeline": self._pipeline, "run": _run.get() or self._run, "query": query, "batch": batch}
        for name, value in about.items():
            if not hasattr(record, name):
                setattr(record, name, value)
        return True
