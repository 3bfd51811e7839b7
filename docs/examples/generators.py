"""Generators of readings, smoke levels and integers: the same rows whenever they are made again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from streaming import (
    BoundedOutOfOrderness,
    Generator,
    Json,
    Pipeline,
    Stream,
    Tumbling,
    Windowed,
    agg,
    epoch_millis,
    noise,
)

SENSORS_OF_A_TASK = 10
TICK_MILLISECONDS = 100


_LAST: dict[tuple[object, ...], tuple[int, float]] = {}
"""The newest step of each walk and where it led, so that the next row need not begin with the first."""


def walked(walk: tuple[object, ...], steps: int, step: Callable[[int, float], float]) -> float:
    """Where a random walk from 65 + 20 N(0, 1) °F leads in so many steps; `step` adds the next one, numbered from 1."""
    done, temperature = _LAST.get(walk, (0, 0.0))
    if done == 0 or done > steps:
        done, temperature = 0, 65 + 20 * noise(*walk)
    for number in range(done + 1, steps + 1):
        temperature += step(number, temperature)
    _LAST[walk] = (steps, temperature)
    return temperature


def reading(task: int, offset: int) -> dict[str, object]:
    """Ten sensors a task, numbered from 1, each with a step of 5 N(0, 1) before every reading.

    The reading has no time of its own: it is that at which the row was due, `_origin.due`.
    """
    tick, number = divmod(offset, SENSORS_OF_A_TASK)
    sensor = f"sensor_{SENSORS_OF_A_TASK * task + number + 1}"
    temperature = walked(("reading", sensor), tick + 1, lambda step, _: 5 * noise(sensor, step))
    return {"id": sensor, "temperature": temperature}


@dataclass(frozen=True)
class ReplayableReading:
    """Ten sensors a task, numbered from 0 across `tasks`; a tick is 100 ms after the one before it, from `start` on.

    The temperature goes by 0.5 N(0, 1) °F a tick, drawn for the new time XOR the whole part of the temperature.
    """

    tasks: int = 1
    start: int = 1_767_225_600_000

    def __call__(self, task: int, offset: int) -> dict[str, object]:
        """The reading of one sensor at one tick; times are milliseconds since the epoch."""
        tick, number = divmod(offset, SENSORS_OF_A_TASK)
        sensor = f"sensor_{task + number * self.tasks}"
        temperature = walked(("replayable", self.start, sensor), tick + 1, self._step)
        return {"id": sensor, "timestamp": self._time(tick + 1), "temperature": temperature}

    def _time(self, step: int) -> int:
        return self.start + step * TICK_MILLISECONDS

    def _step(self, step: int, temperature: float) -> float:
        return 0.5 * noise(self._time(step) ^ int(temperature))


def smoke(task: int, offset: int) -> dict[str, object]:
    """HIGH where a draw of N(0, 1) is above 0.8, about one in five; otherwise LOW."""
    return {"level": "HIGH" if noise("smoke", task, offset) > 0.8 else "LOW"}


def counter(task: int, offset: int) -> dict[str, object]:
    """0, 1, 2, ..."""
    return {"n": offset}


def integer(task: int, offset: int) -> dict[str, object]:
    """1, 2, 3, ..."""
    return {"n": offset + 1}


readings = Stream(
    name="generated_readings",
    description="One row per reading of a sensor, at the time at which it was due.",
    source=Generator(reading, rows_per_second=100, tasks=2),
    format=Json("id string not null, temperature double not null"),
    derived={"at": "_origin.due"},
    event_time="at",
    clock=BoundedOutOfOrderness("5 seconds"),
)

replayable = Stream(
    name="replayable_readings",
    description="A thousand readings that are the same in every run.",
    source=Generator(ReplayableReading(), rows=1_000, rows_per_batch=200),
    format=Json("id string not null, timestamp bigint not null, temperature double not null"),
    derived={"at": epoch_millis("timestamp")},
    event_time="at",
    clock=BoundedOutOfOrderness("5 seconds"),
)

smoke_levels = Stream(
    name="smoke_levels",
    description="One smoke level a second.",
    source=Generator(smoke, rows_per_second=1),
    format=Json("level string not null"),
    derived={"at": "_origin.due"},
    event_time="at",
    clock=BoundedOutOfOrderness("5 seconds"),
)

generated_integers = Stream(
    name="generated_integers",
    description="Ten integers a second, from 1 on.",
    source=Generator(integer, rows_per_second=10),
    format=Json("n bigint not null"),
    derived={"at": "_origin.due"},
    event_time="at",
    clock=BoundedOutOfOrderness("0 seconds"),
)

mean_of_readings = Windowed(
    "mean_of_readings", readings, Tumbling("5 seconds"), {"temperature": agg.mean("temperature")}, by=("id",)
)
mean_of_replayable = Windowed(
    "mean_of_replayable", replayable, Tumbling("5 seconds"), {"temperature": agg.mean("temperature")}, by=("id",)
)
high_smoke = Windowed("high_smoke", smoke_levels, Tumbling("1 minute"), {"high": agg.share("level = 'HIGH'")})
sum_of_integers = Windowed("sum_of_integers", generated_integers, Tumbling("5 seconds"), {"sum": agg.sum("n")})

pipeline = Pipeline(
    name="generators",
    streams=(readings, replayable, smoke_levels, generated_integers),
    operators=(mean_of_readings, mean_of_replayable, high_smoke, sum_of_integers),
)
