"""Corrections go on with the other days where one cannot be computed."""

from __future__ import annotations

import pickle
from datetime import date

import pytest
from pyspark.errors import PySparkException

from streaming.base.errors import CorrectionsFailed, FunctionError, StoreError
from streaming.operators.runtime import each_day
from tests.support.pipelines.beats import by_id

FIRST, SECOND, THIRD, FOURTH = (date(2026, 1, day) for day in range(1, 5))
ERRORS = {SECOND: FunctionError("f raised"), THIRD: PySparkException("[DIVIDE_BY_ZERO] Division. SQLSTATE: 22012")}


def test_days_that_fail_are_named_at_the_end_and_all_others_are_corrected() -> None:
    told: list[tuple[date, int]] = []

    def correct(day: date) -> int:
        if day in ERRORS:
            raise ERRORS[day]
        return day.day

    with pytest.raises(
        CorrectionsFailed,
        match=r"2 days of view 'by_id' cannot be corrected, 2 others are: 2026-01-02: f raised; 2026-01-03: "
        r"\[DIVIDE_BY_ZERO\] Division\. What was .* again\.",
    ) as raised:
        each_day(by_id, [FOURTH, THIRD, FIRST, SECOND], correct, lambda day, rows: told.append((day, rows)))
    assert told == [(FIRST, 1), (FOURTH, 4)] and raised.value.corrected == dict(told)
    assert pickle.loads(pickle.dumps(raised.value)).failed.keys() == raised.value.failed.keys() == ERRORS.keys()


def test_storage_that_is_away_ends_a_correction_at_once() -> None:
    corrected: list[date] = []

    def correct(day: date) -> int:
        corrected.append(day)
        raise StoreError("s3://lake is away")

    with pytest.raises(StoreError):
        each_day(by_id, [FIRST, SECOND], correct, lambda day, rows: None)
    assert corrected == [FIRST]
