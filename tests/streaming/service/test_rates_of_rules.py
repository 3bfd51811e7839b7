"""The rows that break each rule, over time: in the table of progress, in the hours of Dagster, and in the reports."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from platform_assets.events.counts import rejected_numbers
from platform_assets.events.trends import hour_metadata
from streaming import Lake
from streaming.clocks import BatchSummary, BoundedOutOfOrderness, ClockState
from streaming.log import Batch
from streaming.service.progress import Measure
from streaming.service.progress_table import SCHEMA, ProgressTable, read_progress
from streaming.service.reporter import sums
from streaming.tables import delta
from tests.support.instants import at
from tests.support.pipelines.beats import pipeline


def measure(batch: int, rows: int, warned: dict[str, int], reasons: dict[str, int]) -> Measure:
    ended = at(60 * (batch + 1))
    return Measure(
        "log", batch, at(60 * batch), ended, rows, batch, sum(reasons.values()), warned=warned, reasons=reasons
    )


def test_the_table_of_progress_counts_by_rule_also_where_an_older_release_has_made_it(lake: Lake) -> None:
    older = pa.schema([field for field in SCHEMA if field.name not in ("warned", "reasons")])
    table = delta.opened_or_created(lake.progress(pipeline), older, description="", partition_by=["_day"])
    row = {"query": "log", "batch": 0, "started": at(0), "ended": at(60), "rows": 3, "_day": at(60).date()}
    write_deltalake(table, pa.Table.from_pylist([row], older), mode="append")

    told = measure(1, 10, {"usual": 2, "short": 0}, {"json": 1})
    with ProgressTable(lake, pipeline) as progress:
        progress.add([told])
    first, second = read_progress(lake, pipeline, at(0))
    assert (first.rows, first.warned, first.reasons) == (3, {}, {})
    assert second == told


def test_an_hour_in_dagster_has_the_share_of_rows_that_break_each_rule() -> None:
    measures = [measure(0, 10, {"usual": 2}, {"json": 1, "known": 3}), measure(1, 30, {"usual": 6, "short": 1}, {})]
    told = hour_metadata(measures, timedelta(hours=1))
    assert told["warned_share_usual"] == pytest.approx(8 / 36)
    assert told["warned_share_short"] == pytest.approx(1 / 36)
    assert (told["rejected_share_known"], told["rejected_share_json"]) == (3 / 40, 1 / 40)


def test_the_share_of_valid_rows_that_warn_is_of_the_batches_since_there_is_the_rule() -> None:
    def batch(number: int, rows: int, rejected: int, warned: dict[str, int]) -> Batch:
        summary = BatchSummary({}, rows, at(number))
        clock = BoundedOutOfOrderness("5 seconds")
        return Batch(number, "query", number, ClockState(), summary, clock, rejected=rejected, warned=warned)

    of_both = batch(2, 10, 0, {"usual": 1, "short": 5})
    told = rejected_numbers([batch(0, 100, 0, {}), batch(1, 10, 2, {"usual": 2}), of_both])
    assert told["warned_share_usual"] == pytest.approx(3 / 18)
    assert told["warned_share_short"] == pytest.approx(5 / 10)
    assert told["dagster/row_count"] == 2


def test_sums_by_rule_keep_rules_that_nothing_breaks() -> None:
    assert sums({"a": 1, "b": 0}, {"a": 2}, {}) == {"a": 3, "b": 0}
