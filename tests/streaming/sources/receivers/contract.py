"""What every connector must do: run it over one of your own, against the real thing, by telling the rows that come."""

from __future__ import annotations

import copy
import json
import pickle
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing

from streaming.sources.receivers.connector import IDLE, Connector, Received, Reception

_PATIENCE = 10.0


def check_connector(connector: Connector, rows: Sequence[bytes], begin: Callable[[], object] = lambda: None) -> None:
    """The `rows` come, in order, once `begin` was called on a connection that stands; then the source is silent."""
    assert hash(connector) == hash(copy.deepcopy(connector)) and pickle.loads(pickle.dumps(connector)) == connector
    assert connector.address and connector.guarantee in ("at most once", "at least once", "exactly once")

    with closing(connector.receive(Reception())) as receiving:
        parts = [next(receiving)]
        begin()
        while sum(len(part.rows) for part in parts) < len(rows):
            parts.append(_within(receiving))
        # A source that is silent says so, or the file that is due would not be landed.
        parts += [_within(receiving), _within(receiving)]
        began = time.monotonic()
    assert time.monotonic() - began < 2 + IDLE, "it does not end where it yielded"
    received = [row for part in parts for row in part.rows]
    assert received == list(rows)
    assert not [row for row in received if b"\n" in row]
    cursors = [part.cursor for part in parts if part.cursor is not None]
    assert cursors == [json.loads(json.dumps(cursor)) for cursor in cursors]
    words = [part.landed for part in parts if part.rows and part.landed is not None]
    assert bool(cursors) or connector.guarantee != "exactly once"
    assert not cursors or connector.guarantee != "at most once"
    assert bool(words) if connector.guarantee == "at least once" else not words or bool(cursors)
    assert not [part.lost for part in parts if part.lost]
    if connector.guarantee == "exactly once":
        with closing(connector.receive(Reception(cursors[-1]))) as again:
            assert not [row for _ in range(3) for row in _within(again).rows], "the cursor is not behind the rows"


def _within(receiving: Generator[Received, None, None]) -> Received:
    began = time.monotonic()
    received = next(receiving)
    assert time.monotonic() - began < _PATIENCE
    return received
