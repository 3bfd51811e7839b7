"""Whoever follows the work of a run: its clock, and what is called before and after each batch and step."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime

from streaming.base import utc_now
from streaming.log import Batch
from streaming.operators import Written


class Observer:
    """A clock, and nobody who follows; subclasses say what becomes of each batch.

    `query` is the name of the query of a log, of an operator or of a delivery. Methods are called from the thread that
    does the work; what they raise ends it.
    """

    def __init__(self, now: Callable[[], datetime] = utc_now) -> None:
        self.now = now
        """Gives the processing time."""

    def during(self, query: str, number: int) -> AbstractContextManager[None]:
        """Entered for each batch, step, or attempt of a delivery; `number` is that of its first batch."""
        return nullcontext()

    def committed(self, query: str, written: Written, batch: Batch | None) -> None:
        """A batch or step was committed, or has arrived; `batch` is the one of a log."""
