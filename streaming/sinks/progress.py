"""Progress that a target keeps itself: whose it is, and which batch may follow."""

from __future__ import annotations

from streaming.base import FencedError, ProgressError
from streaming.sinks.sink import Delivered, NumberedBatch


def check_own(delivered: Delivered, identity: str, address: str, place: str) -> None:
    """Refuse progress of a delivery with another `identity`, which `place` at `address` has under the same name.

    Raises:
        ProgressError: with the ways out.
    """
    if identity != delivered.identity:
        raise ProgressError(
            f"{address} has progress of another delivery that is called {delivered.name!r} too: of "
            "another lake, or of this one before its tables were removed. Rename the delivery; or, if the other "
            f"one is over, delete what {place} has of it. Nothing was delivered."
        )


def check_follows(batch: NumberedBatch, newest: int, newest_generation: int, address: str) -> None:
    """Refuse a batch that is not the one after `newest`, or of an older generation than the newest there.

    Raises:
        FencedError: another process has delivered meanwhile.
    """
    if batch.number != newest + 1 or newest_generation > batch.generation:
        raise FencedError(
            f"batch {batch.key} is not the one that follows in {address}, which has batch {newest} of "
            "that generation, so another process delivers there. Let it run alone; nothing was written."
        )
