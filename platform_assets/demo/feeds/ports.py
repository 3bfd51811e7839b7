"""Ports for the servers that are started beside a demo, a test or a benchmark."""

from __future__ import annotations

import random
import socket
from itertools import islice

from streaming.base import LOOPBACK, FeedError

_BELOW_EPHEMERAL = range(20_000, 32_768)
"""Systems give ephemeral ports from 32768 (Linux) or from 49152 (RFC 6335, section 6) on.

A port among those may go to somebody else before the server listens there. Whoever asks whether the server is up then
takes the only connection that, for example, Spark accepts for the rows of a `collect`.
"""
# Processes that run side by side draw different ports, also where a test has seeded the module's own generator.
_RANDOM = random.SystemRandom()


def free_ports(number: int) -> list[int]:
    """So many different ports of this machine on which nobody listens, and which the system gives to nobody unasked.

    Raises:
        FeedError: there are not as many.
    """
    drawn = _RANDOM.sample(_BELOW_EPHEMERAL, len(_BELOW_EPHEMERAL))
    ports = list(islice(filter(_is_free, drawn), number))
    if len(ports) < number:
        raise FeedError(
            f"{number} free ports are asked for, and of those from {_BELOW_EPHEMERAL[0]} to {_BELOW_EPHEMERAL[-1]} "
            f"{len(ports)} are free on this machine",
            "stop servers that you no longer need",
        )
    return ports


def free_port() -> int:
    """One of `free_ports`."""
    return free_ports(1)[0]


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
