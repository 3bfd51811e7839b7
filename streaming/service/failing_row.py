"""The first row of a log for which an expression of an operator cannot be computed, for a person to look at."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from streaming.base import BATCH, ORIGIN, StreamingError, names_in
from streaming.declare import Stream
from streaming.lake import Lake
from streaming.log import Batch, read_log, valid
from streaming.operators import Step
from streaming.spark import guarded


def failing_row(spark: SparkSession, lake: Lake, streams: Iterable[Stream], step: Step, expression: str) -> str | None:
    """Where the first row is for which `expression` cannot be computed, and its values; None where none is found.

    It is looked for in the batches of the step, and then in those before them, which may wait for a window to close.
    """
    for stream in streams:
        batches = step.batches.get(stream.name, ())
        if batches:
            try:
                row = _first(valid(read_log(spark, lake, stream)), expression, batches)
            except (PySparkException, Py4JJavaError, StreamingError):
                # It reads more than the rows of one log have, such as those of a pair.
                continue
            if row is not None:
                return _told(stream, row, expression)
    return None


def _first(rows: DataFrame, expression: str, batches: Sequence[Batch]) -> Row | None:
    fails = guarded(F.expr(f"({expression}\n)"), BATCH).isNull()
    of_step = F.col(BATCH).between(batches[0].number, batches[-1].number)
    before = F.col(BATCH) < batches[0].number
    for where in (of_step, before):
        row = rows.where(where & fails).orderBy(BATCH, ORIGIN).first()
        if row is not None:
            return row
    return None


def _told(stream: Stream, row: Row, expression: str) -> str:
    values = ", ".join(f"{name}={row[name]!r}" for name in stream.columns if name in names_in(expression))
    place = ", ".join(f"{name}={value}" for name, value in row[ORIGIN].asDict(recursive=True).items())
    return f"The first such row has {values}, and came with batch {row[BATCH]} of {stream.name} ({place})."
