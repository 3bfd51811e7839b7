"""The landing folder of a receiver, which whoever comes first makes: the receiver, or the stream that reads it."""

from __future__ import annotations

from pathlib import Path

from streaming.base import SourceError
from streaming.declare import Receiver
from streaming.lake import Lake


def make_landing(lake: Lake, receiver: Receiver) -> Path:
    """The folder in which a receiver lands files, made where it is not there.

    Raises:
        SourceError: it is not on this machine.
        OSError: it cannot be made.
    """
    location = receiver.into.source.location(lake)
    local = lake.local(location)
    if local is None:
        raise SourceError(
            f"the landing folder {location!r} is not on this machine, where receiver {receiver.name!r} lands whole "
            "files; name a folder of a disk that is mounted here."
        )
    local.mkdir(parents=True, exist_ok=True)
    return local
