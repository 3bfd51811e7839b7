"""Windows of every kind over revisions are those over the rows that stand, had no other ones ever come."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from streaming import (
    Custom,
    Lake,
    LocalDays,
    Pipeline,
    SessionWindow,
    Sliding,
    Tumbling,
    Windowed,
    WindowFunction,
    agg,
)
from streaming.audit.laws import audit
from streaming.operators.runtime import runtime_of
from tests.laws.standing import side_of
from tests.laws.test_session_laws import drawn
from tests.support.instants import NOW
from tests.support.orders import CLICKS, ORDERS, Revision, came
from tests.support.runs import run
from tests.support.seeds import draws
from tidemark.testing import correct

AGGREGATES = {
    "rows": agg.count(),
    "total": agg.sum("amount"),
    "most": agg.maximum("amount"),
    "middle": agg.median("amount"),
    "different": agg.count_distinct("amount"),
    "all": agg.collect("amount"),
}
OF_MINUTES = "timestamp_seconds(floor(unix_seconds(at) / 60) * 60)"
WINDOWS = {
    "minutes": Tumbling("1 minute", "7 seconds"),
    "sliding": Sliding("1 minute", "20 seconds"),
    "gapped": Sliding("20 seconds", "30 seconds"),
    "days": LocalDays("America/New_York"),
    # A row that takes another one back has its amount, and so its window.
    "custom": Custom(f"array(struct({OF_MINUTES}, {OF_MINUTES} + make_dt_interval(0, 0, 0, amount)))", "2 minutes"),
    "sessions": SessionWindow("30 seconds"),
    "own_gaps": SessionWindow(seconds_of="amount * 10"),
}


def ranked(rows: pd.DataFrame) -> pd.DataFrame:
    """The two greatest amounts of a window of two rows or more; no result for others."""
    if len(rows) < 2:
        return pd.DataFrame({"place": [], "amount": []})
    return pd.DataFrame({"place": [1, 2], "amount": sorted(rows["amount"], reverse=True)[:2]})


OF_ORDERS = (
    *(Windowed(name, ORDERS, window, AGGREGATES, by=("country",)) for name, window in WINDOWS.items()),
    Windowed("once", ORDERS, Tumbling("1 minute"), AGGREGATES, distinct=("amount",)),
    Windowed(
        "ranked",
        ORDERS,
        Tumbling("1 minute"),
        by=("country",),
        function=WindowFunction(ranked, "place int, amount bigint"),
    ),
    Windowed(
        "updated", ORDERS, Tumbling("1 minute"), AGGREGATES, by=("country",), late="update", allowed_lateness="1 minute"
    ),
)
OF_CLICKS = tuple(replace(view, name=f"plain_{view.name}", of=CLICKS) for view in OF_ORDERS)
SIGNED, PLAIN = Pipeline(ORDERS, OF_ORDERS), Pipeline(CLICKS, OF_CLICKS)
END = [Revision("end", 1, 3 * 86_400.0, "XX", 1)]
"""Closes all windows before it."""


def shown(spark: SparkSession, lake: Lake, view: Windowed, what: str = "current") -> list[tuple[Any, ...]]:
    columns = ("window_start", "window_end", *view.by, *view.values)
    rows = runtime_of(view, lake).readable[what](spark).select(*columns).collect()
    # Whichever of two rows of one time came first, the list is the same.
    return sorted((tuple(sorted(each) if isinstance(each, list) else each for each in row) for row in rows), key=repr)


@pytest.mark.long
def test_a_window_of_any_kind_is_that_of_the_rows_that_stand(spark: SparkSession, lake: Lake) -> None:
    """
    x 2 at 01:40 · y 3 at 01:41, and drawn rows
    more drawn rows, and the end after three days   some take rows back while windows are open; all of them close
    x becomes 50 · y is deleted, and drawn rows     are late everywhere
    """
    chance, until, versions = draws("windows of revisions"), 400.0, defaultdict[str, int](int)
    early = [Revision("x", 1, 100, "DE", 2), Revision("y", 1, 101, "DE", 3), *drawn(chance, 330, versions)]
    late = [Revision("x", 2, 101, "DE", 50), Revision("y", 2, None, None, None, True)]
    batches = (early, [*drawn(chance, until, versions), *END], [*late, *drawn(chance, until, versions)])
    for rows in batches:
        run(spark, lake, SIGNED, [each.payload() for each in rows])
    for view in OF_ORDERS:
        correct(spark, lake, view, lambda: NOW)
    standing = [each for each in side_of(came(spark, lake, ORDERS)).standing() if each.id != "end"]
    for rows in (standing, END):
        run(spark, lake, PLAIN, [each.payload() for each in rows])
    for view, plain in zip(OF_ORDERS, OF_CLICKS, strict=True):
        assert shown(spark, lake, view) == shown(spark, lake, plain, "first"), view.name
        assert shown(spark, lake, view) != shown(spark, lake, view, "first"), view.name
    assert [finding for finding in audit(spark, lake, SIGNED) if not finding.holds] == []
