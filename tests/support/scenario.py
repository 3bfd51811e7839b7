"""A day of a pipeline, in stages that may each be run again: what the crash matrix kills."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from streaming import (
    BoundedOutOfOrderness,
    Files,
    Json,
    Lake,
    Pipeline,
    Rule,
    SessionWindow,
    Stream,
    Tumbling,
    Windowed,
    agg,
    correct,
    drain,
    plan,
)
from streaming.operations.repair import repair
from streaming.tables import storage
from tests.support.feeds import Payload, land
from tests.support.instants import at
from tidemark.testing import line

_SENSORS = Stream(
    name="sensors",
    source=Files("landing/sensors"),
    format=Json("id string, at timestamp, value bigint"),
    event_time="at",
    clock=BoundedOutOfOrderness("5 seconds"),
    rules=(Rule("value_present", "value is not null"),),
)
BY_ID = Windowed(
    "by_id",
    _SENSORS,
    Tumbling("10 seconds"),
    {"readings": agg.count(), "sum_value": agg.sum("value"), "mean_value": agg.mean("value")},
    by=("id",),
)
VISITS = Windowed("visits", _SENSORS, SessionWindow("8 seconds"), {"readings": agg.count()}, by=("id",), late="drop")
PIPELINE = Pipeline(_SENSORS, (BY_ID, VISITS))
STAGES = ("morning", "evening", "repair", "correction", "report")
# Without the rule the row without a value is valid: it can be repaired.
_LAX_SENSORS = replace(_SENSORS, rules=())
_LAX = Pipeline(_LAX_SENSORS, (replace(BY_ID, of=_LAX_SENSORS), replace(VISITS, of=_LAX_SENSORS)))
REPORT, SECOND_SECTION = "readings_per_id", "readings_in_all"


def _reading(id_: str | None, seconds: float, value: int | None) -> Payload:
    return {"id": id_, "at": at(seconds).isoformat(), "value": value}


def _unremarkable(seconds: float) -> tuple[Payload, ...]:
    """Valid rows in number, so that the few broken ones stay below the share that closes the gate."""
    return tuple(_reading("c", seconds, 1) for _ in range(50))


# T0 is midnight, so the late pairs are of two days. The comment is the watermark after the batch.
_MORNING: tuple[tuple[Payload, ...], ...] = (
    (_reading("a", -12, 1), _reading("b", -3, 2), "not JSON", _reading("a", 2, 3), *_unremarkable(2)),  # -3
    (_reading("a", 14, 4), _reading("b", 11, 5), _reading("a", -11, 60), *_unremarkable(14)),  # 9; the last one is late
    # 16; 80 is late
    (_reading("a", 21, 6), _reading("b", 3, 7), _reading("b", -5, 80), _reading("a", 9e7, 9), *_unremarkable(21)),
)
_EVENING: tuple[tuple[Payload, ...], ...] = (
    (_reading("a", 5, 100), _reading("b", 33, 11), _reading("b", 34, None)),  # 28; 100 is late, of the second day
    (_reading("a", 35, 12), _reading(None, 36, 13)),  # 31
)


def run_scenario(spark: SparkSession, lake: Lake, now: datetime, stages: Sequence[str] = STAGES) -> None:
    """Drain the morning's files; drain the evening's to the end of input; repair; correct; report.

    Each may be run again.
    """
    if "morning" in stages:
        _land(lake, _MORNING, 0)
        drain(spark, lake, PIPELINE, now=lambda: now)
    if "evening" in stages:
        _land(lake, _EVENING, len(_MORNING))
        drain(spark, lake, PIPELINE, end_of_input=True, now=lambda: now)
    if "repair" in stages:
        repair(spark, lake, _LAX, now=lambda: now)
    if "correction" in stages:
        days = [entry.day for entry in plan(spark, lake, BY_ID)]
        if days:
            correct(spark, lake, BY_ID, days, now=lambda: now)
    if "report" in stages:
        # Great Expectations takes seconds to import, which the other stages need not pay.
        from platform_assets.reports.publish import judge_and_publish

        judge_and_publish(spark, lake, _report(), "run", now=lambda: now)


def _report() -> Any:
    from platform_assets.reports.report import Report, Section
    from quality import Suite, unique

    return Report(
        PIPELINE,
        "Readings per id.",
        (
            Section(
                REPORT,
                "Readings per id, first and current.",
                lambda sources: (
                    sources.current(BY_ID).groupBy("id").sum("readings").toDF("id", "readings").orderBy("id")
                ),
                lambda sources: Suite((unique("unique_key", ("id",)),)),
            ),
            Section(
                SECOND_SECTION,
                "Readings of all ids.",
                lambda sources: sources.current(BY_ID).groupBy().sum("readings").toDF("readings"),
                lambda sources: Suite((unique("unique_key", ("readings",)),)),
            ),
        ),
    )


def _land(lake: Lake, batches: tuple[tuple[Payload, ...], ...], first: int) -> None:
    folder = _SENSORS.source.location(lake)
    for number, payloads in enumerate(batches, start=first):
        file = f"{folder}/{number:04}.json"
        if storage.read_bytes(file) is None:
            if lake.local() is None:
                storage.put_whole(file, b"".join(line(payload) + b"\n" for payload in payloads))
            else:
                land(Path(folder), payloads, name=f"{number:04}.json")
