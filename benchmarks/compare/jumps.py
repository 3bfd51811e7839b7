"""The task of keyed functions as Tidemark declares it: a value that is far from the one before it of its key."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streaming import Key, Keyed, Stream

FAR = 700.0
"""A distance that nine in a hundred values, spread evenly over 0 to 1000, have from the value before."""


def on_jump(key: Key, row: Any) -> None:
    """Tell a value that is far from the one before it."""
    if key.previous is not None and abs(row.value - key.previous) > FAR:
        key.emit(value=row.value, jump=abs(row.value - key.previous))
    key.previous = row.value


def jumps_of(stream: Stream, name: str = "jumps") -> Keyed:
    """Over the rows of `stream`, by `id`."""
    return Keyed(name, stream, ("id",), "previous double", "value double, jump double", on_jump)


def counted_and_summed(jumps: DataFrame) -> list[float]:
    """The number of jumps, and the sums of their values and heights: multiples of a quarter, so exact."""
    totals = jumps.agg(F.count("*"), F.sum("value"), F.sum("jump")).first()
    assert totals is not None
    return list(totals)
