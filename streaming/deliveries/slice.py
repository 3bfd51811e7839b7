"""The content of a batch: new rows of the table, or dead letters that are sent again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from streaming.deliveries.outbox import UNIT, Cursor
from streaming.deliveries.reader import ROW, Reader, places_of

DeadLetter = Mapping[str, Any]
"""A row of the table of dead letters."""


@dataclass(frozen=True)
class Slice:
    """The rows of a batch, the place of each in the table it is of, and how often each was tried before."""

    rows: pa.Table
    places: Sequence[Cursor]
    tried: Sequence[int]


def new(rows: pa.Table, since: Cursor) -> Slice:
    """Rows that come from `since` on, for the first time."""
    return Slice(rows, places_of(rows, since), [0] * rows.num_rows)


def retried(spark: SparkSession, reader: Reader, dead: Sequence[DeadLetter]) -> Slice:
    """The rows behind some dead letters, as the delivery selects them now; those not to be delivered are left out."""
    tried = {place_of(row): int(row["attempt"]) for row in dead}
    rows = reader.at(spark, list(tried))
    pairs = zip(rows[UNIT].to_pylist(), rows[ROW].to_pylist(), strict=True)
    places = [Cursor(unit, row) for unit, row in pairs]
    return Slice(rows.drop_columns([ROW]), places, [tried[place] for place in places])


def place_of(letter: DeadLetter) -> Cursor:
    """The place of the row that a dead letter is of."""
    return Cursor(letter["origin"]["unit"], letter["origin"]["row"])


def first_of(dead: Sequence[DeadLetter], most: int) -> tuple[int, int]:
    """The batch up to which dead letters, oldest first, are sent together, and how many those are.

    About `most`, but all that one batch left.
    """
    through = int(dead[min(most, len(dead)) - 1]["batch"])
    return through, sum(row["batch"] <= through for row in dead)
