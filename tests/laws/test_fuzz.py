"""Random pipelines with one hostile row each: nothing stops but what is declared to, and nothing else changes.

`python -m tests.support.fuzz --minutes 60` tries as many as there is time for; here two are drawn anew each time.
"""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.support.fuzz.case import Tally, try_case
from tests.support.seeds import draws


@pytest.mark.sampled
@pytest.mark.parametrize("number", [0, pytest.param(1, marks=pytest.mark.long)])
def test_a_hostile_row_is_valid_rejected_put_aside_or_paused_for_and_changes_nothing_else(
    spark: SparkSession, number: int
) -> None:
    tally = Tally()
    faults = try_case(spark, draws("fuzz", number).randrange(2**40), tally, rows_tried=1)
    assert not faults, "\n".join(map(str, faults))
    assert tally.rows and sum(tally.outcomes.values()) > tally.rows
