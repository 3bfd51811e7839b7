"""The gate as metrics: the newest judged version of each table, as verdicts have it."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from quality import GATE_INSTRUMENTS, GateCollector, Verdict, store_verdicts
from quality.verdicts import Outcome
from streaming import Lake
from tests.support.instants import at


def verdict(
    expectation: str, outcome: Outcome, version: int, second: float, table: str = "orders/log", id_: str = "one"
) -> Verdict:
    return Verdict(table, id_, version, expectation, "{}", outcome, "", "run", at(second))


def scraped(gate: GateCollector) -> list[str]:
    registry = CollectorRegistry()
    registry.register(gate)
    return [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]


def test_each_expectation_is_told_of_the_newest_version_and_anew_once_there_is_another(lake: Lake) -> None:
    gate = GateCollector(lake, lambda: at(100))
    assert scraped(gate) == []
    store_verdicts(lake, [verdict("dropped", "failed", 1, 0), verdict("unique", "failed", 1, 0)])
    store_verdicts(lake, [verdict("unique", "passed", 2, 40), verdict("usual", "could_not_run", 2, 40)])
    store_verdicts(lake, [verdict("unique", "passed", 7, 90, table="orders/hourly")])
    assert scraped(gate) == [
        'tidemark_table_judged_age_seconds{table="orders/hourly"} 10.0',
        'tidemark_table_judged_age_seconds{table="orders/log"} 60.0',
        'tidemark_expectation_met{expectation="unique",table="orders/hourly"} 1.0',
        'tidemark_expectation_met{expectation="unique",table="orders/log"} 1.0',
        'tidemark_expectation_met{expectation="usual",table="orders/log"} 0.0',
    ]
    # Judged again in the same instant: what closes the gate counts. A table in its place is another one.
    store_verdicts(lake, [verdict("unique", "failed", 2, 40)])
    store_verdicts(lake, [verdict("unique", "failed", 7, 95, table="orders/hourly", id_="two")])
    assert [line for line in scraped(gate) if "unique" in line] == [
        'tidemark_expectation_met{expectation="unique",table="orders/hourly"} 0.0',
        'tidemark_expectation_met{expectation="unique",table="orders/log"} 0.0',
    ]


def test_every_sample_of_the_gate_has_the_labels_of_its_instrument(lake: Lake) -> None:
    store_verdicts(lake, [verdict("unique", "passed", 1, 0)])
    told = list(GateCollector(lake, lambda: at(1)).samples())
    assert {name: tuple(labels) for name, labels, _ in told} == {
        name: each.labels for name, each in GATE_INSTRUMENTS.items()
    }
