"""Sessions of two streams that fall apart, from frames: what a correction has of them, and what it stands for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from streaming import Files, SessionWindow, WindowJoined
from streaming.operators import Progress
from streaming.views.corrections import correction, current_results
from tests.support.instants import T0, at
from tests.support.orders import CLICKS, ORDERS

DAY = 86_400
VALUES = {"due": "left_amount", "paid": "right_amount"}
BOTH = WindowJoined("both", ORDERS, CLICKS, ("id",), SessionWindow("30 seconds"), VALUES, "outer")
TAPS = replace(CLICKS, name="taps", source=Files("landing/taps"))
BESIDE = replace(BOTH, name="beside", left=CLICKS, right=TAPS)

LOGGED = (
    "id string, version bigint, at timestamp, country string, amount bigint, gone boolean, "
    "_batch bigint, _watermark timestamp, _day date, _origin struct<{}>"
)
RESULT = "id string, window_start timestamp, window_end timestamp, due bigint, paid bigint, _day date"
Shown = tuple[float, float, int | None, int | None, bool]
"""Start and end in seconds after T0, the values, and a flag."""


def shown(rows: DataFrame, flag: str) -> list[Shown]:
    origin = int(T0.timestamp() * 1_000_000)
    bounds = (f"(unix_micros({bound}) - {origin}) / 1e6" for bound in ("window_start", "window_end"))
    return sorted((tuple(row) for row in rows.selectExpr(*bounds, "due", "paid", flag).collect()), key=repr)


@pytest.mark.parametrize("parted", [{"orders": 0}, {"orders": 0, "clicks": 9}], ids=["orders alone", "clicks later"])
def test_a_correction_has_the_part_that_is_over_of_a_session_that_is_open(
    spark: SparkSession, parted: Mapping[str, int]
) -> None:
    """
    orders       clicks
    9 at 00:25   1 at 00:00, 2 at 00:50   one session, up to 01:20, which is open at 01:00
    9 is taken back                       two, of which the first is over and the second is open

    Rows of the clicks are taken back by a later batch, or by none.
    """

    def row(seconds: float, amount: int, batch: int, *origin: Any) -> tuple[Any, ...]:
        return ("a", 1, at(seconds), "DE", amount, False, batch, at(60) if batch else None, T0.date(), origin)

    logs = {
        "orders": spark.createDataFrame(
            [row(25, 9, 0, 1, "a v1"), row(25, 9, 1, -1, "a v1")], LOGGED.format("change: int, identity: string")
        ),
        "clicks": spark.createDataFrame([row(0, 1, 0, 0), row(50, 2, 0, 1)], LOGGED.format("position: bigint")),
    }
    reached = Progress({"orders": 1, "clicks": 0}, {"orders": at(60), "clicks": at(60)})
    rows = correction(logs, BOTH, T0.date(), reached, parted)
    passed = 60 - 0.000_001
    assert shown(rows, "_retracted") == [
        (0, 30, None, 1, False),
        (0, passed, None, None, True),
        (50, 80, None, None, True),
    ]


def test_a_correction_of_one_day_leaves_a_session_of_the_next_day_that_has_fallen_off(spark: SparkSession) -> None:
    """
    1 at 23:59:40, 2 at 00:00:30   two sessions
    4 at 00:00:05, late            would join them
    4 is taken back                two, and the day of the first is corrected
    taps are taken back            after that
    """
    one, other = ((DAY - 20, DAY + 10, 1, None), (DAY + 30, DAY + 60, 2, None))
    days = (at(0).date(), at(DAY).date())

    def result(start: int, end: int, due: int | None, paid: int | None) -> tuple[Any, ...]:
        return ("a", at(start), at(end), due, paid)

    first = spark.createDataFrame([(*result(*one), days[0]), (*result(*other), days[1])], RESULT)
    void = result(DAY - 20, DAY + 60, None, None)
    corrections = spark.createDataFrame(
        [(*result(*one), days[0], False, 3, 1), (*void, days[0], True, 3, 1)],
        f"{RESULT}, _retracted boolean, _through_left bigint, _through_right bigint",
    )
    for parted in ({"clicks": 3}, {"clicks": 3, "taps": 2}):
        current = current_results(first, corrections, BESIDE, parted=parted)
        assert shown(current, "_corrected") == [(*one, True), (*other, False)], parted
