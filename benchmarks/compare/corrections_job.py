"""The cost of corrections as the log and the days grow.

`python -m benchmarks.compare.corrections_job DATA WORK RESULT` runs it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.compare.data import BEGIN, Shape, generate
from benchmarks.compare.declared import declared
from streaming import Lake, Pipeline, drain
from streaming.base.intervals import utc_now
from streaming.spark.session import start_session
from streaming.views.corrections import correct

A_DAY = 100_000
LOGS = (2, 8, 32)
"""Days of each log: one, four and sixteen times as much."""
ROUNDS = 5


def main() -> None:
    """Build the logs, then time corrections in turn; the first round warms up and does not count."""
    data, work, result = map(Path, sys.argv[1:])
    spark = start_session()
    logs = [_log(spark, data, work, days) for days in LOGS]
    # Not the last day of a log: its late rows would come with the day after.
    one, *_ = eight = [BEGIN.date() + timedelta(days=number) for number in range(8)]
    by_log: list[list[float]] = [[] for _ in logs]
    by_days: list[list[float]] = [[], []]
    rows: list[int] = []
    for round_ in range(ROUNDS + 1):
        taken = [_seconds(spark, *each, [one]) for each in logs]
        taken_by_days = []
        for days in ([one], eight):
            before = _rows_read(spark)
            taken_by_days.append(_seconds(spark, *logs[-1], days))
            rows.append(_rows_read(spark) - before)
        if round_:
            for kept, seconds in zip([*by_log, *by_days], [*taken, *taken_by_days], strict=True):
                kept.append(seconds)
    figures = {"by_log": by_log, "by_days": by_days, "rows_read": rows[-2:], "rows_of": [A_DAY, A_DAY * 8]}
    result.write_text(json.dumps(figures))


def _log(spark: SparkSession, data: Path, work: Path, days: int) -> tuple[Lake, Pipeline]:
    landing, _ = generate(data, Shape(days * A_DAY, a_file=A_DAY, a_second=A_DAY / 86_400, disorder=60))
    lake, pipeline = Lake(str(work / f"{days}-days")), declared(str(landing), 1)
    drain(spark, lake, pipeline, end_of_input=True)
    return lake, pipeline


def _seconds(spark: SparkSession, lake: Lake, pipeline: Pipeline, days: Sequence[date]) -> float:
    started = time.monotonic()
    corrected = correct(spark, lake, pipeline.views[0], days, utc_now)
    if not all(corrected.values()):
        raise AssertionError(f"nothing was corrected in some of {days}: {corrected}")
    return time.monotonic() - started


def _rows_read(spark: SparkSession) -> int:
    """Rows that all stages so far have read from files."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None and gateway.jvm is not None
    of_all = (None, False, False, gateway.new_array(gateway.jvm.double, 0), gateway.jvm.java.util.ArrayList())
    stages = spark.sparkContext._jsc.sc().statusStore().stageList(*of_all)
    return sum(stages.apply(number).inputRecords() for number in range(stages.size()))


if __name__ == "__main__":
    main()
