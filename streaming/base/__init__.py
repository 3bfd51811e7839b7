"""What every room rests on: errors, names, intervals, SQL text, and the columns that the platform adds."""

from streaming.base import sql
from streaming.base.columns import (
    DAY,
    EVENT_TIME,
    INGESTED_AT,
    ORDER,
    WINDOW,
)
from streaming.base.constants import (
    constant,
)
from streaming.base.errors import (
    CheckpointError,
    DeclarationError,
    FeedError,
    FencedError,
    JarError,
    JavaError,
    LeaseError,
    LogError,
    QueryFailed,
    SettingsError,
    SourceError,
    StreamingError,
    SupervisorError,
    ViewError,
)
from streaming.base.intervals import (
    EPOCH,
    FIRST_INSTANT,
    MICROSECOND,
    MILLISECOND,
    from_micros,
    interval,
    literal,
    to_micros,
    utc_now,
)
from streaming.base.names import (
    check_column_name,
    check_name,
)
from streaming.base.sql import (
    Column,
    check_names,
    columns_of,
    names_in,
)

__all__ = [
    "DAY",
    "EPOCH",
    "EVENT_TIME",
    "FIRST_INSTANT",
    "INGESTED_AT",
    "MICROSECOND",
    "MILLISECOND",
    "ORDER",
    "WINDOW",
    "CheckpointError",
    "Column",
    "DeclarationError",
    "FeedError",
    "FencedError",
    "JarError",
    "JavaError",
    "LeaseError",
    "LogError",
    "QueryFailed",
    "SettingsError",
    "SourceError",
    "StreamingError",
    "SupervisorError",
    "ViewError",
    "check_column_name",
    "check_name",
    "check_names",
    "columns_of",
    "constant",
    "from_micros",
    "interval",
    "literal",
    "names_in",
    "sql",
    "to_micros",
    "utc_now",
]
