"""Suites that follow from the declarations alone, so that a new stream needs nobody to write any."""

from __future__ import annotations

from quality.expectations import Suite, always, nothing_from, of_types, unique
from streaming.base import MICROSECOND, ORIGIN
from streaming.declare import LEFT_AT, RIGHT_AT, Joined, OverWindows, Stream

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
_OWN = {"_rejected": "array<string>", "_batch": "bigint", "_watermark": "timestamp", "_day": "date"}


def log_suite(stream: Stream) -> Suite:
    """Types as declared, few rejected rows, and a clear line between valid and rejected."""
    return Suite(
        (
            of_types("column_types", {column.name: column.type for column in stream.format.columns} | _OWN),
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


def view_suite(view: OverWindows, *per: str) -> Suite:
    """Results on the day of their window, one per key, window and `per` unless a function or a pair makes many."""
    once = () if view.gives_many else (unique("unique_key", (*view.identity, *per)),)
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


def corrections_suite(view: OverWindows) -> Suite:
    """As the view's, and only windows that have a late row are corrected."""
    return view_suite(view).extended((always("has_late_rows", "_late_rows >= 1", "a corrected window has a late row"),))


def pairs_suite(joined: Joined) -> Suite:
    """Each pair of rows once, on the day of the later one, and no further apart than declared."""
    lower, upper = (bound // MICROSECOND for bound in (joined.lower, joined.upper))
    apart = f"unix_micros({RIGHT_AT}) - unix_micros({LEFT_AT})"
    return Suite(
        (
            unique("unique_pair", (ORIGIN,)),
            always("within_bounds", f"{apart} between {lower} and {upper}", "rows of a pair are as close as declared"),
            _DAY_OF_TIME,
        )
    )


def unmatched_suite() -> Suite:
    """Each row that had no partner in time once, and without one."""
    alone = f"({LEFT_AT} is null) <> ({RIGHT_AT} is null)"
    return Suite(
        (
            unique("unique_row", (ORIGIN,)),
            always("alone", alone, "a row without a partner is of one side only"),
            _DAY_OF_TIME,
        )
    )


_DAY_OF_TIME = always("day_of_time", "_day = to_date(_at)", "a result is on the day of its event time")
