"""The sign of life of a stream process, told to its supervisor through a pipe, which no storage can block."""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import datetime

from pydantic import BaseModel, ConfigDict, ValidationError

from streaming.service.status import Phase

BEATS_EVERY = 0.5
"""Seconds between two pulses."""

_READ_AT_ONCE = 65_536


class Pulse(BaseModel):
    """A sign of life of a stream process, given at `at`, by its own clock.

    Its main loop came round, or its drain got on, at `passed`; `running` is the batch that runs in each query, and
    since when.
    """

    model_config = ConfigDict(frozen=True)

    at: datetime
    phase: Phase
    passed: datetime
    running: dict[str, tuple[int, datetime]] = {}


def send_pulse(descriptor: int, pulse: Pulse) -> None:
    """Write a pulse; one that nobody reads is left out, for a pipe that is full must not hold up its sender."""
    with suppress(BlockingIOError, BrokenPipeError):
        os.write(descriptor, pulse.model_dump_json().encode() + b"\n")


class PulseReader:
    """The end of the pipe that hears the pulses; it never waits for one."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._unfinished = b""

    def newest(self) -> Pulse | None:
        """The newest pulse that came since this was asked last; None where none came."""
        newest = None
        while content := self._read():
            *lines, self._unfinished = (self._unfinished + content).split(b"\n")
            for line in lines:
                # A pulse that met a full pipe may have been cut short.
                with suppress(ValidationError):
                    newest = Pulse.model_validate_json(line)
        return newest

    def close(self) -> None:
        """Close the pipe."""
        os.close(self._descriptor)

    def _read(self) -> bytes:
        try:
            return os.read(self._descriptor, _READ_AT_ONCE)
        except BlockingIOError:
            return b""
