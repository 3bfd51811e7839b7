"""Names of the columns that the platform adds to a stream's own."""

from __future__ import annotations

DAY = "_day"


"""The column that partitions a table."""


EVENT_TIME = "_event_time"


"""The row's event time, under the same name in every stream."""


ORDER = "_order"


"""The row's place: event time, then the log's own order."""


INGESTED_AT = "_ingested_at"


WINDOW = "_window"
