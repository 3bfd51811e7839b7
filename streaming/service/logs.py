"""The lines of a stream's log: as text, or as JSON for a central index."""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from types import TracebackType

from pyspark.logger import PySparkLogger

from streaming.base import shown
from streaming.lake import Settings
from streaming.service.log_context import NONE, About

PIPELINE, RUN = "TIDEMARK_LOG_PIPELINE", "TIDEMARK_LOG_RUN"
"""Variables by which a process and its JVM know what their lines are about."""

_TEXT = "%(asctime)s %(levelname)s pipeline=%(pipeline)s run=%(run)s query=%(query)s batch=%(batch)s %(message)s"

_BYPASSING = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


def configure_logs(settings: Settings, pipeline: str, run: str = NONE) -> None:
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
            **{name: _known(getattr(record, name, NONE)) for name in ("pipeline", "run", "query", "batch")},
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["trace"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)


def _known(value: object) -> object:
    return None if value == NONE else value


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    logging.getLogger("tidemark").critical("ended by an error: %s", error, exc_info=(kind, error, trace))
