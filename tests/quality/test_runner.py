from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context

import pytest
from pyspark.sql import DataFrame, SparkSession

from docs.examples.late_counts import readings
from quality import Suite, SuiteError, always, mostly_absent, nothing_from, of_type, of_types, run_suite, unique
from quality.find import log_suite
from streaming.declare.stream import Stream


@pytest.fixture(scope="module")
def hours(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(
        [
            ("EWR", 3, -1, "not asked"),
            ("EWR", 1, 5, None),
            ("JFK", 1, 0, "bad"),
            ("JFK", 1, None, None),
            (None, 2, 3, None),
        ],
        "origin string, hour int, flights bigint, _rejected string",
    )


@pytest.mark.long
def test_every_expectation_has_one_finding_in_order_and_says_what_it_saw(hours: DataFrame) -> None:
    suite = Suite(
        (
            always("hour_positive", "hour > 0", "hours begin at one"),
            always("flights_positive", "flights > 0", "flights are positive"),  # 0 breaks it, and so does null
            unique("key", ("origin", "hour")),
            unique("hour_only", ("flights",)),
            of_type("flights", "LongType"),
            of_type("hour", "LongType"),
            of_type("_rejected", "StringType"),
            of_types("types", {"flights": "bigint", "hour": "long", "_rejected": "string"}),
            mostly_absent("few_rejected", "_rejected", 0.75, "few"),
            mostly_absent("fewer_rejected", "_rejected", 0.8, "few"),
            nothing_from(
                "every_origin",
                "SELECT explode(array('EWR', 'LGA')) AS origin EXCEPT SELECT origin FROM {batch}",
                "every origin is there",
            ),
            always("no_such_column", "nope > 0", "cannot be computed"),
            always("crashes", "raise_error('boom') is null", "cannot be computed"),
            of_type("nope", "LongType"),
        ),
        only="hour < 3",
    )

    findings = run_suite(lambda: hours, suite)

    outcomes = [(finding.expectation.name, finding.outcome, finding.observed) for finding in findings]
    assert outcomes[:11] == [
        ("hour_positive", "passed", "0 rows"),
        (
            "flights_positive",
            "failed",
            "2 rows, such as origin=JFK, hour=1, flights=0, _rejected=bad; "
            "origin=JFK, hour=1, flights=None, _rejected=None",
        ),
        ("key", "failed", "1 rows, such as origin=JFK, hour=1, times=2"),
        ("hour_only", "passed", "0 rows"),
        ("type_of_flights", "passed", "LongType"),
        ("type_of_hour", "failed", "IntegerType"),
        ("type_of_rejected", "passed", "StringType"),
        ("types", "failed", "1 rows, such as column=hour, expected=bigint, found=int"),
        ("few_rejected", "passed", "1 of 4 rows (25.00%)"),
        ("fewer_rejected", "failed", "1 of 4 rows (25.00%), such as bad"),
        ("every_origin", "failed", "1 rows, such as origin=LGA"),
    ]
    assert [(name, outcome) for name, outcome, _ in outcomes[11:]] == [
        ("no_such_column", "could_not_run"),
        ("crashes", "could_not_run"),
        ("type_of_nope", "could_not_run"),
    ]
    assert "nope" in outcomes[11][2]
    assert "boom" in outcomes[12][2]
    # The number in what was observed: of rows that break it, or none.
    assert [finding.value for finding in findings[:6]] == [0, 2, 1, 0, None, None]
    assert [finding.value for finding in findings[7:11]] == [1, 1, 1, 1]
    assert not hours.sparkSession.catalog.tableExists("tmp_view")
    assert not hours.is_cached


def test_what_cannot_even_be_read_leaves_every_expectation_not_run() -> None:
    def read() -> DataFrame:
        raise OSError("version 7 is gone")

    findings = run_suite(read, Suite((unique("a", ("x",)), unique("b", ("y",)))))

    assert [(finding.outcome, finding.observed) for finding in findings] == [("could_not_run", "version 7 is gone")] * 2


def test_a_suite_is_checked_when_declared() -> None:
    with pytest.raises(SuiteError, match="'key' is declared twice"):
        Suite((unique("key", ("a",)), unique("key", ("b",))))
    with pytest.raises(SuiteError, match="let everything pass"):
        Suite(())


@pytest.mark.long
def test_great_expectations_can_be_imported_in_a_spawned_process() -> None:
    """Dagster's run workers are spawned; there the import may end the process with exit code 0."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        pool.submit(exec, "import great_expectations.expectations").result(timeout=120)


def test_braces_of_a_pattern_are_no_names(spark: SparkSession) -> None:
    codes = spark.createDataFrame([("EWR", '{"a": { } }'), ("NY", "{ }")], "code string, note string")
    asked = (
        always("three_letters", "code rlike '^[A-Z]{2,3}$'", "codes have three letters"),
        always("noted", """note in ('{"a": { } }', '{ }')""", "notes are JSON"),
        always("known", "code in (select code from {batch})", "codes are there"),
        nothing_from("pairs", "SELECT * FROM {batch} WHERE code rlike '^[A-Z]{2}$'", "no code has two letters"),
        nothing_from("escaped", "SELECT * FROM {batch} WHERE code rlike '^[A-Z]{{2}}$'", "no code has two letters"),
    )
    found = [finding.outcome for finding in run_suite(lambda: codes, Suite(asked))]
    assert found == ["passed", "passed", "passed", "failed", "failed"]


@pytest.mark.long
def test_rejected_rows_whose_batches_have_left_the_log_do_not_close_the_gate(spark: SparkSession) -> None:
    """A day brings a hundred valid rows and a rejected one; of 143 days retention has left the valid ones of seven."""
    columns = (
        "_batch bigint, _rejected array<string>, _day date, _watermark timestamp, "
        "_origin struct<position: bigint, repairs: bigint>"
    )

    def came(day: int) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=day)

    def rejected(day: int, position: int = 0) -> tuple[object, ...]:
        return (day, ["broken"], None, came(day), (position, None))

    def valid(day: int, position: int, repairs: int | None = None) -> tuple[object, ...]:
        return (day, None, came(day).date(), came(day), (position, repairs))

    def outcome(stream: Stream, *rows: tuple[object, ...]) -> str:
        suite = log_suite(stream)
        share = Suite(tuple(each for each in suite.expectations if each.name == "rejected_share"), suite.only)
        log = spark.createDataFrame(rows, columns)
        (finding,) = run_suite(lambda: log, share)
        return finding.outcome

    kept = replace(readings, retention="7 days")
    old = [rejected(day) for day in range(143)]
    left = [valid(day, row) for day in range(136, 143) for row in range(1, 101)]
    # Its day is ahead, so that it is the one valid row left of a batch long ago.
    ahead = valid(3, 9)
    assert outcome(kept, *old, *left, ahead) == "passed"
    assert outcome(readings, *old, *left) == "failed", "without a retention all rows are there, and all count"
    assert outcome(kept, *old) == "failed", "no valid row has come for a week"
    more = [rejected(142, row) for row in range(200, 210)]
    assert outcome(kept, *old, *left, *more) == "failed"
    mended = [valid(142, row, repairs=142) for row in range(200, 210)]
    assert outcome(kept, *old, *left, *more, *mended) == "passed"
