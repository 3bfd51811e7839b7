"""From which day on a log keeps rows: so long before the watermark, and never further back than it was."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta

import pytest

from docs.examples.late_counts import readings
from streaming.base.errors import DeclarationError
from streaming.clocks.clock import BatchSummary, ClockState
from streaming.log.batches import Batch
from streaming.log.ingest import kept_from
from tests.support.instants import NOW, T0

two_days = replace(readings, retention="2 days")


def batch(kept: date | None) -> Batch:
    return Batch(0, "query", 0, ClockState(), BatchSummary({}, 0, NOW), readings.clock, kept_from=kept)


def test_a_batch_keeps_whole_days_so_long_before_its_stamp() -> None:
    assert kept_from(None, two_days, None) is None
    assert kept_from(None, two_days, T0 + timedelta(days=5)) == date(2026, 1, 4)
    assert kept_from(None, two_days, T0 + timedelta(days=6, microseconds=-1)) == date(2026, 1, 4)
    assert kept_from(batch(date(2026, 1, 4)), two_days, T0 + timedelta(days=6)) == date(2026, 1, 5)


def test_a_log_that_keeps_everything_has_no_such_day() -> None:
    assert kept_from(batch(None), readings, NOW) is None


@pytest.mark.parametrize("retention", [None, "400 days"])
def test_what_may_be_dropped_by_now_stays_rejected_whatever_is_declared(retention: str | None) -> None:
    declared = replace(readings, retention=retention)
    assert kept_from(batch(date(2026, 1, 4)), declared, T0 + timedelta(days=7)) == date(2026, 1, 4)


def test_a_batch_tells_it_in_its_commit() -> None:
    kept = batch(date(2026, 1, 4))
    assert Batch.from_json(kept.to_json()).kept_from == kept.kept_from
    assert "kept_from" not in batch(None).to_json()


def test_a_retention_of_less_than_a_day_is_refused() -> None:
    with pytest.raises(DeclarationError, match="retention='23 hours' of stream 'readings' is shorter than a day"):
        replace(readings, retention="23 hours")
