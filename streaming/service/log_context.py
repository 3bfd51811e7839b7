"""What a line of a stream's log is about: of which pipeline, run and batch it tells."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from uuid import uuid4

NONE = "-"
"""Stands for a run, a query or a batch where a line is about none."""

_run: ContextVar[str] = ContextVar("run", default="")
_batch: ContextVar[tuple[str, int] | None] = ContextVar("batch", default=None)


def new_run() -> str:
    """The id of one run of a stream process, from its start to its end."""
    return uuid4().hex[:12]


def begin_run(run: str) -> None:
    """What this thread logs from now on is about that run: its supervisor sees many."""
    _run.set(run)


def current_run() -> str:
    """The run that this thread has begun; empty before the first one."""
    return _run.get()


@contextmanager
def in_batch(query: str, number: int) -> Iterator[None]:
    """What is logged in the body, by this thread, is about this batch of a query or step of an operator."""
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
        query, batch = _batch.get() or (NONE, NONE)
        about = {"pipeline": self._pipeline, "run": _run.get() or self._run, "query": query, "batch": batch}
        for name, value in about.items():
            if not hasattr(record, name):
                setattr(record, name, value)
        return True
