"""The table of verdicts, as older versions of the platform have left it."""

from __future__ import annotations

from dataclasses import asdict

import pyarrow as pa
import pytest

from quality import Subject, Suite, SuiteError, Verdict, always, reasons_of, store_verdicts, verdicts_for, warnings_of
from quality.expectations import Expectation, Level
from quality.verdicts import Outcome, write_rows
from streaming.lake.lake import Lake
from tests.support.instants import at


@pytest.mark.parametrize("value", [0.0, 2.5, None])
def test_verdicts_with_a_number_follow_those_that_were_stored_without_one(lake: Lake, value: float | None) -> None:
    old = Verdict("orders/log", "id", 0, "unique_key", "{}", "passed", "0 rows", "run-1", at(0))
    row = {name: entry for name, entry in asdict(old).items() if name != "value"}
    write_rows(lake.verdicts(), pa.Table.from_pylist([row]), "append", metadata={}, description="Older.")

    new = Verdict("orders/log", "id", 1, "unique_key", "{}", "failed", "2.5", "run-2", at(60), value)
    store_verdicts(lake, [new])

    assert verdicts_for(lake, "orders/log", 0) == {"unique_key": old}
    assert verdicts_for(lake, "orders/log", 1) == {"unique_key": new}


@pytest.mark.parametrize(
    ("level", "outcome", "closes", "warns"),
    [
        ("error", "passed", False, False),
        ("error", "failed", True, False),
        ("warn", "passed", False, False),
        ("warn", "failed", False, True),
        # Nobody knows what the data are like, so nobody can say that it is worth a warning only.
        ("warn", "could_not_run", True, False),
        ("warn", None, True, False),
    ],
)
def test_an_expectation_that_warns_closes_no_gate_where_the_data_do_not_meet_it(
    level: Level, outcome: Outcome | None, closes: bool, warns: bool
) -> None:
    usual = always("usual", "amount < 100", "amounts are below 100", level=level)
    subject = Subject("orders/log", "id", 3)
    judged = {} if outcome is None else {"usual": verdict_of(usual, subject, outcome)}
    assert bool(reasons_of(Suite((usual,)), subject, judged)) == closes
    assert [reason.observed for reason in warnings_of(Suite((usual,)), subject, judged)] == ["2 rows"] * warns


def test_a_verdict_stands_when_only_the_level_of_its_expectation_changes() -> None:
    strict = always("usual", "amount < 100", "amounts are below 100")
    mild = always("usual", "amount < 100", "amounts are below 100", level="warn")
    subject = Subject("orders/log", "id", 3)
    judged = {"usual": verdict_of(strict, subject, "failed")}
    assert reasons_of(Suite((mild,)), subject, judged) == []


def test_a_level_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(SuiteError, match="level 'info' of expectation 'usual' is none; choose from error, warn"):
        always("usual", "amount < 100", "amounts are below 100", level="info")  # type: ignore[arg-type]


def verdict_of(expectation: Expectation, subject: Subject, outcome: Outcome) -> Verdict:
    return Verdict(
        subject.table,
        subject.table_id,
        subject.version,
        expectation.name,
        expectation.definition,
        outcome,
        "2 rows",
        "run-1",
        at(0),
    )
