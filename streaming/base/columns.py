"""Names of the columns that the platform adds to a stream's own, and values that are one for all rows of a batch."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from streaming.base.deferred import F
from streaming.base.intervals import to_micros

if TYPE_CHECKING:
    from pyspark.sql import Column

DAY = "_day"
"""The date of the event time, which partitions a table; null for rejected rows and heartbeats."""

WARNED = "_warned"
"""The names of the rules that a valid row breaks and that only warn; a log has it whose stream declares such a rule."""

EVENT_TIME = "_event_time"
"""The row's event time, under the same name in every stream."""

ORDER = "_order"
"""The row's place: event time, then the log's own order."""

ORIGIN = "_origin"
"""Where a row is from, as its source tells it."""

INGESTED_AT = "_ingested_at"
"""The processing time at which the row's batch was read."""

STAMP = "_watermark"
"""The watermark that was in force when the row's batch was read; null before there was one."""

BATCH = "_batch"
"""The number of the row's batch in the log, or of the step that wrote it, where that is of several logs."""

STEP_COLUMN = "_step"
"""The number of the step that wrote the row, where a batch is answered in several."""

AT = "_at"
"""The event time of a row that an operator makes of others."""

WRITTEN_AT = "_written_at"
"""The processing time at which the row was written."""

WINDOW = "_window"
"""A window that the row is in: a struct of `start` and `end`."""

ADDED = "_added"
"""The column that identifies the row which a revision has added; null where its key is gone."""

SIGN = "_change"
"""The column of changes that is 1 for a result that is there from now on, and -1 for one that is not any more."""

REASON = "_reason"
"""The kind of a result: it is the `first`, or an `update` or a `correction`."""

REVISION = "_revision"
"""The number of the look that told a change of what is current, or that brought a result there; it orders the rows of
one key in a target, where a row never replaces one of a higher revision."""

COPY = "_copy"
"""The column that numbers equal results, from 1 on; only where results have no key of their own."""

CLOCK = "_clock"
"""The watermark of an operator when it was looked at, in its changes."""

RETRACTED = "_retracted"
"""True where a result of a window is void, and the row has no values."""


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
