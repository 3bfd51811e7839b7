"""Values that are the same for all rows of a batch, and others in the next batch."""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import Column
from pyspark.sql import functions as F

from streaming.base.intervals import to_micros


def constant(value: int | datetime | None, column: str = "_raw") -> Column:
    """A bigint, or a timestamp (null for None), without a trace in generated code; the frame has a nullable `column`.

    A literal is written into the code that Spark generates, which is then compiled for every batch and begins cold: an
    eighth of a batch of a thousand rows. An array is handed over as an object, and an index that needs a row keeps the
    optimizer from taking the value out of it.
    """
    if isinstance(value, int):
        text = f"bigint({value})"
    else:
        text = f"timestamp_micros({'null' if value is None else to_micros(value)})"
    # One call into the JVM, where columns put together would take a dozen.
    return F.expr(f"array({text}, {text})[int({column} is null)]")
