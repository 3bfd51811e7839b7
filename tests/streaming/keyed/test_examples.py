"""The examples of keyed functions, each with its timeline."""

from __future__ import annotations

import inspect
from datetime import datetime
from types import ModuleType
from typing import Any

import pytest

from docs.examples import (
    bubble_game,
    click_ids,
    fire_alarm,
    model_scores,
    steady_rises,
    switches,
    temperature_jumps,
)
from tests.support.instants import T0, at, ms
from tidemark.testing import Played, play

EXAMPLES = (bubble_game, click_ids, fire_alarm, model_scores, steady_rises, switches, temperature_jumps)


def timeline(done: Played) -> list[str]:
    """What happened when to which key, what it emitted, and which timers it has then; times in seconds after T0."""
    return [
        " ".join(
            [
                f"{seconds(moment.at)} {moment.key[0]} {moment.what.partition(' Row(')[0]}:",
                *(f"emits {', '.join(map(seconds, row[2:]))}" for row in moment.emitted),
                *(f"{name}@{seconds(due)}" for name, due in moment.timers.items()),
            ]
        )
        for moment in done.moments
    ]


def seconds(value: Any) -> str:
    """An instant in seconds after T0; a number as it is."""
    return f"{(value - T0).total_seconds() if isinstance(value, datetime) else value:.12g}"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.__name__.rpartition(".")[2])
def test_an_example_has_less_than_forty_lines_and_imports_the_public_api_alone(example: ModuleType) -> None:
    source = inspect.getsource(example).splitlines()
    assert len(source) < 40
    assert {line.split()[1] for line in source if line.startswith("from ")} <= {"streaming", "typing"}


def test_temperature_jump() -> None:
    def reading(seconds: float, temperature: float) -> dict[str, Any]:
        return {"id": "a", "timestamp": ms(at(seconds)), "event_time": at(seconds), "temperature": temperature}

    drawn = [reading(1, 20), reading(2, 21.5), reading(3, 23.5)], [reading(4, 23)]
    assert timeline(play(temperature_jumps.jumps, *drawn, end_of_input=True)) == [
        "1 a row: forget@3601",
        "2 a row: forget@3602",
        "3 a row: emits 23.5, 2 forget@3603",
        "4 a row: forget@3604",
        "3604 a timer forget:",
    ]


def test_fire_alarm() -> None:
    def seen(what: str, seconds: float) -> dict[str, Any]:
        return {"place": "p", "seen": what, "seen_at": at(seconds)}

    drawn = [seen("heat", 0), seen("smoke", 600)], [seen("smoke", 660), seen("heat", 640)]
    assert timeline(play(fire_alarm.alarms, *drawn, end_of_input=True)) == [
        "0 p row: over@600.000001",
        "600 p row: emits 0, 600",
        "640 p row: over@1240.000001",
        "660 p row: emits 640, 660",
    ]


def test_steady_rise() -> None:
    def reading(seconds: float, temperature: float) -> dict[str, Any]:
        return {"id": "a", "read_at": at(seconds), "temperature": temperature}

    drawn = [reading(0, 10), reading(0.25, 11), reading(0.5, 12)], [reading(0.75, 12), reading(1, 13), reading(1.5, 9)]
    assert timeline(play(steady_rises.rises, *drawn, end_of_input=True)) == [
        "0 a row:",
        "0.25 a row: warn@1.25",
        "0.5 a row: warn@1.25",
        "0.75 a row: warn@1.25",
        "1 a row: warn@1.25",
        "1.25 a timer warn: emits 13",
        "1.5 a row:",
    ]


def test_switches_with_expiry() -> None:
    def of(sensor: str, seconds: float, **more: int) -> dict[str, Any]:
        return {"id": sensor, "at": at(seconds), **more}

    turned = [of("s2", 0, milliseconds=10_000), of("s2", 8, milliseconds=10_000), of("s2", 9, milliseconds=2_000)]
    read = [of("s1", 1), of("s2", 5), of("s2", 17.999), of("s2", 18)]
    done = play(switches.passed, {"switches": turned, "switched": read}, end_of_input=True)
    assert timeline(done) == [
        "0 s2 row: off@10",
        "5 s2 row: emits 10 off@10",
        "1 s1 row:",
        "8 s2 row: off@18",
        "9 s2 row: off@18",
        "17.999 s2 row: emits 18 off@18",
        "18 s2 timer off:",
        "18 s2 row:",
    ]
    assert done.state == {}


def test_clicks_with_expiring_ids() -> None:
    def click(visit: str, seconds: float) -> dict[str, Any]:
        return {"visit": visit, "clicked_at": at(seconds)}

    done = play(click_ids.visits, [click("x", 0), click("y", 60)], [click("x", 30)], end_of_input=True)
    assert timeline(done) == [
        "0 x row: over@1800",
        "60 y row: over@1860",
        "30 x row: over@1830",
        "1830 x timer over: emits 2",
        "1860 y timer over: emits 1",
    ]
    assert done.state == {}


def test_model_as_state() -> None:
    def model(slope: float, version: int) -> dict[str, Any]:
        return {"model": "heat", "at": at(0), "slope": slope, "version": version}

    def row(seconds: float) -> dict[str, Any]:
        return {"id": "a", "at": at(seconds), "heat": 3.0}

    drawn = (
        {"scored": [row(1)]},
        {"models": [model(2.0, 1)], "scored": [row(2)]},
        {"models": [model(5.0, 3), model(4.0, 2)], "scored": [row(3)]},
    )
    assert timeline(play(model_scores.scores, *drawn)) == ["1 a row:", "2 a row: emits 6, 1", "3 a row: emits 15, 3"]
