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
    ChangedDeclaration,
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
from streaming.base.frozen_mapping import (
    FrozenMapping,
)
from streaming.base.intervals import (
    END_OF_EVENT_TIMES,
    EPOCH,
    FIRST_EVENT_TIME,
    FIRST_INSTANT,
    LAST_MILLISECOND,
    MICROSECOND,
    MILLISECOND,
    date_literal,
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
    "END_OF_EVENT_TIMES",
    "EPOCH",
    "EVENT_TIME",
    "FIRST_EVENT_TIME",
    "FIRST_INSTANT",
    "INGESTED_AT",
    "LAST_MILLISECOND",
    "MICROSECOND",
    "MILLISECOND",
    "ORDER",
    "WINDOW",
    "ChangedDeclaration",
    "CheckpointError",
    "Column",
    "DeclarationError",
    "FeedError",
    "FencedError",
    "FrozenMapping",
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
    "date_literal",
    "from_micros",
    "interval",
    "literal",
    "names_in",
    "sql",
    "to_micros",
    "utc_now",
]
