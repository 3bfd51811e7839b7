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
from tidemark.testing import correct, land_all

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
SHOP = Pipeline(name="shop", streams=(ORDERS, CLICKS), operators=(*OF_ORDERS, *OF_CLICKS))
END = [Revision("end", 1, 3 * 86_400.0, "XX", 1)]
"""Closes all windows before it."""


def shown(spark: SparkSession, lake: Lake, view: Windowed) -> list[tuple[Any, ...]]:
    columns = ("window_start", "window_end", *view.by, *view.values)
    rows = runtime_of(view, lake).readable["current"](spark).select(*columns).collect()
    # Whichever of two rows of one time came first, the list is the same.
    return sorted((tuple(sorted(each) if isinstance(each, list) else each for each in row) for row in rows), key=repr)


@pytest.mark.long
def test_a_window_of_any_kind_is_that_of_the_rows_that_stand(spark: SparkSession, lake: Lake) -> None:
    chance, until, versions = draws("windows of revisions"), 400.0, defaultdict[str, int](int)
    batches = []
    for _ in range(4):
        until += chance.choice((20, 60, 150))
        batches.append(drawn(chance, until, versions))
    # What comes then is late everywhere, and takes rows back.
    late = [*drawn(chance, until, versions), *drawn(chance, until, versions)]
    for rows in (*batches, END, late):
        land_all(lake, ORDERS, [each.payload() for each in rows])
        run(spark, lake, SHOP)
    for view in OF_ORDERS:
        correct(spark, lake, view, lambda: NOW)
    standing = [each for each in side_of(came(spark, lake, ORDERS)).standing() if each.id != "end"]
    for rows in (standing, END):
        land_all(lake, CLICKS, [each.payload() for each in rows])
    run(spark, lake, SHOP)
    assert standing
    for view, plain in zip(OF_ORDERS, OF_CLICKS, strict=True):
        assert shown(spark, lake, view) == shown(spark, lake, plain), view.name
    assert [finding for finding in audit(spark, lake, SHOP) if not finding.holds] == []
