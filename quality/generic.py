"""Suites that follow from the declarations alone, so that a new stream needs nobody to write any."""

from __future__ import annotations

from collections.abc import Iterator

from quality.expectations import Expectation, Suite, always, fresh, nothing_from, of_types, unique
from streaming.base import interval
from streaming.declare import WITHHELD, Freshness, Operator, Stream, freshness_of

GREATEST_REJECTED_SHARE = 0.02
_SINCE_KEPT = """
        WHERE coalesce(_origin.repairs, _batch) >= coalesce(
            (
                SELECT min(_batch)
                FROM {{batch}} CROSS JOIN (SELECT max(_watermark) AS newest FROM {{batch}})
                WHERE _watermark >= timestampadd(SECOND, -{seconds:.0f}, newest)
            ),
            0
        )
"""
"""Leaves the batches whose days retention has not reached: rejected rows stay when the valid ones beside them go."""


def _rejected_share(stream: Stream) -> str:
    """The query that has a row where too many rows are rejected."""
    kept = "" if stream.retention is None else _SINCE_KEPT.format(seconds=interval(stream.retention).total_seconds())
    # A repaired row is in the log twice: as it was rejected, and as the valid row that repairs it.
    return f"""
    SELECT rejected, rows_read
    FROM (
        SELECT count_if(_rejected is not null) - count_if(_origin.repairs is not null) AS rejected,
               count_if(_origin.repairs is null) AS rows_read
        FROM {{batch}}{kept}
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
                _rejected_share(stream),
                f"at most {GREATEST_REJECTED_SHARE:.0%} of the rows read are rejected and not repaired",
            ),
            always(
                "valid_has_event_time",
                f"_rejected is not null or ({_has_time(stream)} and _day is not null)",
                f"every valid row has its event time {stream.event_time}",
            ),
            always(
                "valid_or_rejected",
                "_rejected is null or (_day is null and (_raw is not null "
                f"or exists(_rejected, each -> startswith(each, '{WITHHELD}: '))))",
                "a rejected row is on no day and keeps its payload, or says that it is withheld",
            ),
            *_of_values(stream),
            *_of_contract(stream),
        ),
        # A heartbeat was not read from the source, so it must not lower the share of rejected rows.
        only="_origin is not null",
    )


def _of_values(stream: Stream) -> Iterator[Expectation]:
    """The values of which each has to be fresh, by the stream's own clock."""
    time = f"CASE WHEN _day IS NOT NULL THEN `{stream.event_time}` END"
    yield from _fresh_values(freshness_of(stream.fresh_within), time, "max(_watermark)")


def _fresh_values(freshness: Freshness | None, time: str, clock: str | None = None) -> Iterator[Expectation]:
    """The values that `fresh_within` asks for; a report is right without one, so that it is told and lets pass."""
    if freshness is not None and freshness.by:
        yield fresh(
            "values_are_fresh",
            freshness.by,
            freshness.within,
            time=time,
            clock=clock,
            retired_after=freshness.retired_after,
            level="warn",
        )


def _of_contract(stream: Stream) -> Iterator[Expectation]:
    """The checks of the contract that the stream follows, over its rows as they come; none over what follows them."""
    for check in () if stream.contract is None or stream.revised else stream.contract.checks:
        meaning = check.meaning or f"{check.query} {check.expected}"
        yield nothing_from(check.name, check.defects, meaning, level="error" if check.severity == "error" else "warn")


def _has_time(stream: Stream) -> str:
    """The condition of a row that has the time it needs; one that deletes needs none."""
    known = f"{stream.event_time} is not null"
    return known if stream.exempt is None or stream.revised else f"({known} or {stream.exempt})"


def results_suite(operator: Operator, suffix: str = "") -> Suite | None:
    """The laws of the rows of an operator's table, by its suffix, and of its own the values that have to be fresh.

    None where the declaration says nothing of them.
    """
    laws = operator.laws_of(suffix)
    once = (unique(law.name, law.unique) for law in laws if law.unique)
    conditions = (always(law.name, law.condition, law.meaning) for law in laws if not law.unique)
    freshness = None if suffix else freshness_of(getattr(operator, "fresh_within", None))
    expectations = (*once, *conditions, *_fresh_values(freshness, "window_end"))
    return Suite(expectations) if expectations else None
