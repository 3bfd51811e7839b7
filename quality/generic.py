"""Suites that follow from the declarations alone, so that a new stream needs nobody to write any."""

from __future__ import annotations

from quality.expectations import Expectation, Suite, always, nothing_from, of_type, unique
from streaming.base import Column
from streaming.declare import Stream, Windowed

GREATEST_REJECTED_SHARE = 0.02
# A repaired row is in the log twice: as it was rejected, and as the valid row that repairs it.
_REJECTED_SHARE = f"""
    SELECT rejected, rows_read
    FROM (
        SELECT count_if(_rejected is not null) - count_if(_origin.repairs is not null) AS rejected,
               count_if(_origin.repairs is null) AS rows_read
        FROM {{batch}}
    )
    WHERE rejected > {GREATEST_REJECTED_SHARE} * rows_read
"""
_TYPES = {
    "string": "StringType",
    "boolean": "BooleanType",
    "tinyint": "ByteType",
    "byte": "ByteType",
    "smallint": "ShortType",
    "short": "ShortType",
    "int": "IntegerType",
    "integer": "IntegerType",
    "bigint": "LongType",
    "long": "LongType",
    "float": "FloatType",
    "double": "DoubleType",
    "decimal": "DecimalType",
    "date": "DateType",
    "timestamp": "TimestampType",
    "array": "ArrayType",
    "struct": "StructType",
    "map": "MapType",
}
_OWN = {"_rejected": "ArrayType", "_batch": "LongType", "_watermark": "TimestampType", "_day": "DateType"}


def log_suite(stream: Stream) -> Suite:
    """Types as declared, few rejected rows, and a clear line between valid and rejected."""
    return Suite(
        (
            *(_typed(column) for column in stream.format.columns),
            *(of_type(name, type_) for name, type_ in _OWN.items()),
            nothing_from(
                "rejected_share",
                _REJECTED_SHARE,
                f"at most {GREATEST_REJECTED_SHARE:.0%} of the rows read are rejected and not repaired",
            ),
            always(
                "valid_has_event_time",
                f"_rejected is not null or ({stream.event_time} is not null and _day is not null)",
                f"every valid row has its event time {stream.event_time}",
            ),
            always(
                "valid_or_rejected",
                "_rejected is null or (_day is null and _raw is not null)",
                "a rejected row is on no day and keeps its payload",
            ),
        ),
        # A heartbeat was not read from the source, so it must not lower the share of rejected rows.
        only="_origin is not null",
    )


def view_suite(view: Windowed, *per: str) -> Suite:
    """One result per key, window and `per`, on the day of its window; a function may give many."""
    once = () if view.function else (unique("unique_key", (*view.identity, *per)),)
    return Suite(
        (
            *once,
            always(
                "day_of_window",
                "window_start < window_end and _day = to_date(window_start)",
                "a result is on the day its window starts",
            ),
        )
    )


def corrections_suite(view: Windowed) -> Suite:
    """As the view's, and only windows that have a late row are corrected."""
    return view_suite(view).extended((always("has_late_rows", "_late_rows >= 1", "a corrected window has a late row"),))


def _typed(column: Column) -> Expectation:
    return of_type(column.name, _TYPES[column.type.split("(")[0].split("<")[0]])
