"""Values on their way between a process that asks and one that computes: a length, then the value pickled."""

from __future__ import annotations

import pickle
import struct
from typing import IO, Any

LENGTH = struct.Struct("!Q")


def framed(value: Any) -> bytes:
    """A value as it is sent."""
    content = pickle.dumps(value)
    return LENGTH.pack(len(content)) + content


def read_frame(stream: IO[bytes]) -> Any:
    """The next value.

    Raises:
        EOFError: there is none any more.
    """
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        raise EOFError
    content = stream.read(LENGTH.unpack(head)[0])
    return pickle.loads(content)
