"""Golden tests of deliveries that fail on the way."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import BoundedOutOfOrderness, Files, Json, Lake, Pipeline, Stream, Tumbling, Windowed, agg
from streaming.declare.delivery import Delivery
from streaming.deliveries.runtime import DeliveryRuntime
from streaming.service.delivering import Delivering
from streaming.service.observer import Observer
from streaming.sinks.files import JsonLines
from streaming.sinks.printing import Console
from tests.support.failing import FailingMap, RowFailed
from tests.support.instants import NOW, at
from tests.support.runs import run

SENSORS, STEPS_PER_SECOND, SECONDS = 10, 10, 40

sensors = Stream(
    name="sensors",
    source=Files("landing/sensors"),
    format=Json("id string, at timestamp, temperature double"),
    event_time="at",
    clock=BoundedOutOfOrderness("0 seconds"),
)
average = Windowed("average", sensors, Tumbling("1 second"), {"average": agg.mean("temperature")})


def generated() -> Iterator[dict[str, Any]]:
    """The readings of ten sensors, each step a random walk that its own time and temperature decide."""
    temperatures = dict.fromkeys((f"sensor_{number}" for number in range(SENSORS)), 65.0)
    for step in range(STEPS_PER_SECOND * SECONDS + 1):
        for id_, temperature in temperatures.items():
            seed = step * 100 ^ int(temperature)
            temperatures[id_] = temperature + 0.5 * random.Random(f"{id_} {seed}").gauss(0, 1)
            yield {"id": id_, "at": at(step / STEPS_PER_SECOND).isoformat(), "temperature": temperatures[id_]}


def averages(readings: list[dict[str, Any]]) -> list[tuple[str, float]]:
    """The end of each second, and the mean of its readings."""
    of_a_second = SENSORS * STEPS_PER_SECOND
    means = [
        sum(reading["temperature"] for reading in readings[first : first + of_a_second]) / of_a_second
        for first in range(0, of_a_second * SECONDS, of_a_second)
    ]
    return [(at(second + 1).isoformat().replace("+00:00", "Z"), round(mean, 6)) for second, mean in enumerate(means)]


@pytest.mark.long
def test_x7_a_map_that_fails_again_and_again_leaves_no_gap_and_files_without_duplicates(
    spark: SparkSession, lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    """A batch is 10 rows, and the map fails at the 17th of each process: all of it takes four of them."""
    readings = list(generated())
    run(spark, lake, Pipeline(sensors, (average,)), readings)
    expected = averages(readings)

    def delivered(delivery: Delivery) -> int:
        """Start a process after another until one ends well; returns how many have failed."""
        failed = 0
        while True:
            delivering = Delivering(
                spark, lake, Pipeline(sensors, (average,), deliveries=(delivery,)), Observer(lambda: NOW)
            )
            delivering.deliver_all()
            if not delivering.paused:
                return failed
            assert isinstance(delivering.paused[delivery.name].__cause__, RowFailed)
            failed += 1

    def parsed(lines: list[str]) -> list[tuple[str, float]]:
        rows = [json.loads(line) for line in lines]
        return [(row["window_end"], round(row["average"], 6)) for row in rows]

    columns = ("window_end", "average")
    files = Delivery("files", average, FailingMap(JsonLines("out", by="none")), select=columns, batch=10)
    assert delivered(files) == 3
    lines = [line for path in sorted(Path(lake.root, "out").glob("*.json")) for line in path.read_text().splitlines()]
    assert parsed(lines) == expected

    capsys.readouterr()
    printed = Delivery("printed", average, FailingMap(Console()), select=columns, batch=10)
    assert delivered(printed) == 3
    shown = parsed([line.partition("> ")[2] for line in capsys.readouterr().out.splitlines()])
    # Each process but the first begins with the six rows that the one before it had shown already.
    again = [row for first in (10, 20, 30) for row in expected[first : first + 6]]
    assert len(shown) == len(expected) + len(again)
    assert sorted(shown) == sorted([*expected, *again])
    assert DeliveryRuntime(printed, lake, lambda: NOW).standing().rows == len(expected)
