from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from docs.examples.metrics import pipeline as metrics
from docs.examples.orders import pipeline as orders
from platform_assets.demo import suites as demo_suites
from platform_assets.demo.pipelines.flights import pipeline as flights
from quality import Pins, SuiteError, open_gate, pin, suites_for, unique
from streaming.lake.lake import Lake
from tests.support.packages import importable, write_modules


def names(suites: dict, role: str) -> list[str]:
    return [expectation.name for expectation in suites[role].expectations]


def test_a_pipeline_without_a_module_has_the_suites_its_declarations_imply() -> None:
    suites = suites_for(orders)

    assert {role: names(suites, role) for role in suites} == {
        "log": [
            "column_types",
            "rejected_share",
            "valid_has_event_time",
            "valid_or_rejected",
        ],
        "orders_per_day": ["unique_key", "day_of_window"],
        "orders_per_day_corrections": ["unique_key", "day_of_window", "has_late_rows"],
    }


def test_a_pipelines_own_module_adds_to_them() -> None:
    suites = suites_for(flights)
    own = ["flights_at_least_one", "cancelled_at_most_flights", "on_time_share_between_0_and_1"]

    assert names(suites, "departures_by_origin") == ["unique_key", "day_of_window", *own]
    assert names(suites, "departures_by_origin_corrections") == ["unique_key", "day_of_window", "has_late_rows", *own]


def test_expectations_for_a_table_that_is_not_there_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("platform_assets.demo.suites.orders")
    module.__spec__ = __spec__
    module.expectations = {"orders_per_hour": (unique("key", ("x",)),)}  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "platform_assets.demo.suites.orders", module)

    with pytest.raises(SuiteError, match=r"'orders_per_hour'.*orders_per_day"):
        suites_for(orders)


def test_a_typo_is_answered_with_every_table_that_can_have_expectations(tmp_path: Path) -> None:
    write_modules(tmp_path, {"metrics": "expectations = {'registred': ()}"})
    with pytest.MonkeyPatch.context() as patch, importable(tmp_path):
        patch.setattr(demo_suites, "__path__", [str(tmp_path), *demo_suites.__path__])
        # No suite follows from the declaration of a selection, but its own module may give it one.
        with pytest.raises(SuiteError, match=r"'registred'; pipeline 'metrics' has: log, .*\bregistered\b"):
            suites_for(metrics)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("expectations = {", "orders.py:1: SyntaxError: '{' was never closed"),
        ("\n1 / 0", "orders.py:2: ZeroDivisionError: division by zero"),
        ("import nothing_like_this", "orders.py:1: ModuleNotFoundError: No module named 'nothing_like_this'"),
    ],
)
def test_the_gate_stays_closed_while_the_pipelines_own_module_cannot_be_imported(
    source: str, reason: str, tmp_path: Path, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_modules(tmp_path, {"orders": source})
    monkeypatch.setattr(demo_suites, "__path__", [str(tmp_path), *demo_suites.__path__])
    text = f"module platform_assets.demo.suites.orders is broken: {tmp_path}/{reason}. Correct it"

    with importable(tmp_path):
        for ask in (
            lambda: suites_for(orders),
            lambda: pin(lake, orders),
            lambda: open_gate(None, lake, orders, Pins("orders", ())),  # type: ignore[arg-type]
        ):
            with pytest.raises(SuiteError, match=re.escape(text)):
                ask()
        assert "departures_by_origin" in suites_for(flights)


def test_a_definition_tells_two_limits_apart() -> None:
    assert unique("key", ("a",)).definition != unique("key", ("b",)).definition
