"""The gate as metrics: the newest judged version of each table, as verdicts have it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
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


def lost(lake: Lake, expectation: str) -> None:
    """The file with the only verdict on an expectation is there no more."""
    table = DeltaTable(lake.verdicts())
    actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    (path,) = (action["path"] for action in actions if action["max.expectation"] == expectation)
    (Path(table.table_uri.removeprefix("file://")) / path).unlink()


def test_only_verdicts_are_read_that_came_since_the_last_scrape(lake: Lake) -> None:
    gate = GateCollector(lake, lambda: at(100))
    store_verdicts(lake, [verdict("unique", "passed", 1, 0)])
    scraped(gate)
    lost(lake, "unique")
    store_verdicts(lake, [verdict("usual", "failed", 1, 5)])
    assert scraped(gate) == [
        'tidemark_table_judged_age_seconds{table="orders/log"} 95.0',
        'tidemark_expectation_met{expectation="unique",table="orders/log"} 1.0',
        'tidemark_expectation_met{expectation="usual",table="orders/log"} 0.0',
    ]


def test_files_that_are_brought_together_and_a_table_that_is_made_anew_are_read_whole(lake: Lake) -> None:
    gate = GateCollector(lake, lambda: at(100))
    store_verdicts(lake, [verdict("unique", "passed", 1, 0)])
    store_verdicts(lake, [verdict("usual", "failed", 1, 5)])
    before = scraped(gate)
    DeltaTable(lake.verdicts()).optimize.compact()
    store_verdicts(lake, [verdict("unique", "passed", 1, 5)])
    assert scraped(gate) == before
    version = DeltaTable(lake.verdicts()).version()
    shutil.rmtree(lake.verdicts())
    for second in range(version + 1):
        store_verdicts(lake, [verdict("dropped", "passed", 1, second)])
    assert scraped(gate)[1:] == ['tidemark_expectation_met{expectation="dropped",table="orders/log"} 1.0']


def test_where_verdicts_cannot_be_read_the_last_ones_are_told_and_it_is_said_once(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    gate = GateCollector(lake, lambda: at(100))
    store_verdicts(lake, [verdict("unique", "passed", 1, 0)])
    before = scraped(gate)
    store_verdicts(lake, [verdict("usual", "failed", 1, 5)])
    lost(lake, "usual")
    assert scraped(gate) == before == scraped(gate)
    (said,) = caplog.messages
    assert "verdicts of the gate cannot be read, so that the last ones are told: FileNotFoundError" in said


def test_of_a_version_that_is_judged_again_and_again_one_verdict_of_each_expectation_is_kept(lake: Lake) -> None:
    gate = GateCollector(lake, lambda: at(100))
    outcomes: tuple[Outcome, ...] = ("passed", "failed", "passed")
    for second, outcome in enumerate(outcomes):
        both = [verdict("unique", outcome, 1, second), verdict("usual", "passed", 1, second)]
        store_verdicts(lake, both)
        of_unique = next(line for line in scraped(gate) if 'expectation="unique"' in line)
        assert of_unique.endswith("0.0") == (outcome == "failed")
    assert gate._newest is not None and gate._newest.rows.num_rows == 2


def test_every_sample_of_the_gate_has_the_labels_of_its_instrument(lake: Lake) -> None:
    store_verdicts(lake, [verdict("unique", "passed", 1, 0)])
    told = list(GateCollector(lake, lambda: at(1)).samples())
    assert {name: tuple(labels) for name, labels, _ in told} == {
        name: each.labels for name, each in GATE_INSTRUMENTS.items()
    }
