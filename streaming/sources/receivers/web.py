"""The common parts of connectors to web servers: headers with secrets in them, and pauses."""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Mapping

from streaming.base import ReceiverError
from streaming.sources.receivers.connector import IDLE, Received


def all_headers(address: str, headers: Mapping[str, str], secret: Mapping[str, str]) -> dict[str, str]:
    """The `headers`, and the values that the environment has for the `secret` ones, by variable.

    Raises:
        ReceiverError: a variable is not set.
    """
    missing = sorted(variable for variable in secret.values() if variable not in os.environ)
    if missing:
        raise ReceiverError(f"{address} needs {', '.join(missing)} in the environment, which is not set; set it.")
    return {**headers, **{header: os.environ[variable] for header, variable in secret.items()}}


def on_one_line(payload: bytes) -> bytes:
    """The payload with spaces for line breaks, which JSON does not notice: a row of a file is a line."""
    return payload.replace(b"\r", b" ").replace(b"\n", b" ")


def pause(seconds: float) -> Generator[Received, None, None]:
    """Nothing for so long, told often enough for files that are due."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(IDLE, left))
        yield Received()
