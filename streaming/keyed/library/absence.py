"""Absence: a key that falls silent is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streaming.base import check_type
from streaming.declare import Keyed, OnError, Stream, micros
from streaming.keyed.fold import Key

_SILENT = "silent"


@dataclass(frozen=True)
class _Await:
    """Waits for the next row from each one on."""

    after: int

    def __call__(self, key: Key, row: Any) -> None:
        key.last_at = key.at
        key.timer(_SILENT, key.at + self.after)


def _tell_silence(key: Key) -> None:
    """Emit since when the key is silent, and wait for it no longer."""
    key.emit(last_at=key.last_at)
    key.clear()


def absence(
    name: str,
    of: Stream,
    by: tuple[str, ...],
    *,
    after: str,
    on_error: OnError = "pause",
    version: int = 1,
    description: str = "",
) -> Keyed:
    """A keyed function that tells a key without a row for as long as `after`, as of a heartbeat that fails to come.

    The result has `last_at`, the event time of its last row, and `_at`, the time at which the next one was due. Each
    silence is told once; a key that comes back is watched again. Rows come by event time, late ones not at all, and
    only the watermark tells that time has passed: declare `heartbeat_after` in the clock where a whole stream may fall
    silent.

    Raises:
        DeclarationError: `after` is no interval.
    """
    check_type(f"of= of {name!r}", of, Stream, "the stream that it reads")
    return Keyed(
        name=name,
        of=of,
        by=by,
        state="last_at timestamp",
        result="last_at timestamp",
        on_row=_Await(micros(after)),
        timers={_SILENT: _tell_silence},
        order="event",
        on_error=on_error,
        version=version,
        description=description,
    )
