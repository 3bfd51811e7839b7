"""The file that takes what a command would otherwise pour over the terminal: traces, and what Spark and Java say."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from streaming.base import StreamingError
from streaming.lake import Settings

_BYPASSING = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Loggers of PySpark that bring a handler for the terminal of their own."""

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class CommandLog:
    """The log file of the command that this process runs; a command that ends well leaves none behind."""

    def __init__(self) -> None:
        self._file: Path | None = None

    @property
    def file(self) -> Path:
        """`_logs/<command>-<time>-<process>.log` in the lake; in the temporary folder where the lake is not here."""
        if self._file is None:
            command = sys.argv[1] if len(sys.argv) > 1 and sys.argv[1].isalpha() else "tidemark"
            name = f"{command}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{os.getpid()}.log"
            self._file = _folder() / name
            self._file.touch()
        return self._file

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """While the body runs, log records and the errors of threads go to the file; Tidemark's warnings to both."""
        root, own = logging.getLogger(), logging.getLogger("tidemark")
        to_file, to_terminal = _Lazy(self), logging.StreamHandler()
        to_file.setFormatter(logging.Formatter(_FORMAT))
        hook = threading.excepthook
        root.addHandler(to_file)
        own.addHandler(to_terminal)
        threading.excepthook = lambda error: self.write("".join(traceback.format_exception(error.exc_value)))
        try:
            yield
        finally:
            root.removeHandler(to_file)
            own.removeHandler(to_terminal)
            threading.excepthook = hook

    def takes_records_of_pyspark(self) -> None:
        """Let PySpark's own loggers, which bring a handler for the terminal, write to the file."""
        from pyspark.logger import PySparkLogger

        to_file = _Lazy(self)
        to_file.setFormatter(logging.Formatter(_FORMAT))
        for name in _BYPASSING:
            PySparkLogger.getLogger(name).handlers = [to_file]

    @contextmanager
    def takes_stderr(self) -> Iterator[TextIO]:
        """Processes that are started in the body, such as Spark's JVM, have the file as their standard error.

        Gives what leads to the terminal meanwhile.
        """
        with os.fdopen(os.dup(2), "w") as terminal:
            try:
                with self.file.open("ab") as file:
                    os.dup2(file.fileno(), 2)
                yield terminal
            finally:
                os.dup2(terminal.fileno(), 2)

    def write(self, text: str) -> None:
        """Add to the file."""
        with self.file.open("a") as file:
            file.write(f"{text.rstrip()}\n")

    def discard(self) -> None:
        """Remove the file, if there is one."""
        if self._file is not None:
            self._file.unlink(missing_ok=True)
            self._file = None


class _Lazy(logging.Handler):
    """Makes the file only when there is something to write."""

    def __init__(self, log: CommandLog) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record."""
        self._log.write(self.format(record))


def _folder() -> Path:
    try:
        lake = Settings().lake.local()
        # A lake that is not there yet is not made for the sake of a log: the path may be wrong.
        if lake is not None and lake.is_dir():
            logs = lake / "_logs"
            logs.mkdir(exist_ok=True)
            return logs
    except (OSError, StreamingError):
        pass
    return Path(tempfile.gettempdir())


command_log = CommandLog()
"""That of this process."""
