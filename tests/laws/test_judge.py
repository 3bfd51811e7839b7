"""The verdict on every line, as one batch of many generated lines, against the oracle."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streaming.log.validate import RowValidator
from tests.laws.oracle import day_of, judge, micros
from tests.laws.readings import NOW, pipeline
from tests.laws.running import reason_labels
from tests.laws.strategies import HORIZON, NOT_JSON, generated, lines

ON_THE_BOUND = tuple(
    b'{"key": "%s", "at": "%s", "value": %s, "unit": "C"}' % entry
    for entry in (
        (b"horizon", b"2026-03-09T04:01:30Z", b"1"),
        (b"after the horizon", b"2026-03-09T04:01:30.000001Z", b"1"),
        (b"epoch", b"1970-01-01T00:00:00Z", b"1"),
        (b"before the epoch", b"1969-12-31T23:59:59.999999Z", b"1"),
        (b"least", b"2026-01-02T00:00:00Z", b"-100"),
        (b"below least", b"2026-01-02T00:00:00Z", b"-101"),
        (b"greatest", b"2026-01-02T00:00:00Z", b"100"),
        (b"above greatest", b"2026-01-02T00:00:00Z", b"101"),
        (b"null value", b"2026-01-02T00:00:00Z", b"null"),
        (b"leap day", b"2024-02-29T12:00:00Z", b"1"),
        (b"no leap day", b"2026-02-29T12:00:00Z", b"1"),
    )
)


@pytest.fixture(scope="module")
def every_line() -> list[bytes]:
    return sorted({*generated(lines(dirt=2), 1500, "lines"), *NOT_JSON, *ON_THE_BOUND})


@pytest.fixture(scope="module")
def judged(spark: SparkSession, every_line: list[bytes]) -> dict[bytes, dict[str, Any]]:
    """Each line's row, from one Spark job."""
    raw = spark.createDataFrame(
        [(line, number) for number, line in enumerate(every_line)], "_raw binary, _origin bigint"
    )
    stream = pipeline().stream
    rows = (
        RowValidator(stream)(stream.format.parse(raw), NOW)
        .withColumn("at_micros", F.unix_micros("at"))
        .toArrow()
        .to_pylist()
    )
    return {every_line[row["_origin"]]: row for row in rows}


def test_the_generated_lines_hold_every_verdict_often(every_line: list[bytes]) -> None:
    verdicts = [judge(line, micros(NOW)) for line in every_line]
    reasons = [reason for verdict in verdicts for reason in verdict.reasons]
    rules = {"json", "event_time", "max_ahead", "value_plausible", "unit_known"}
    types = {f"type: {column}" for column in ("key", "at", "value", "unit")}
    assert {reason for reason in reasons if reasons.count(reason) >= 10} == rules | types
    assert sum(verdict.event is not None for verdict in verdicts) >= 200
    assert sum(len(verdict.reasons) > 1 for verdict in verdicts) >= 20
    assert any(verdict.event is not None and verdict.event.at == HORIZON for verdict in verdicts)


def test_no_line_gets_lost_in_the_judging(every_line: list[bytes], judged: dict[bytes, dict[str, Any]]) -> None:
    assert set(judged) == set(every_line)


def test_every_line_is_rejected_for_exactly_the_reasons_of_the_oracle(
    every_line: list[bytes], judged: dict[bytes, dict[str, Any]]
) -> None:
    reasons = {line: reason_labels(row["_rejected"]) for line, row in judged.items()}
    assert reasons == {line: judge(line, micros(NOW)).reasons for line in every_line}


def test_every_valid_line_becomes_the_row_it_says_and_every_rejected_one_keeps_its_payload(
    judged: dict[bytes, dict[str, Any]],
) -> None:
    for line, row in judged.items():
        event = judge(line, micros(NOW)).event
        assert row["_raw"] == line
        if event is None:
            assert row["_day"] is None, line
        else:
            columns = (row["key"], row["at_micros"], row["value"], row["_day"])
            assert columns == (event.key, event.at, event.value, day_of(event.at)), line
