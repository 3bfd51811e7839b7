"""Alerts on a running stream, in minutes."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from streaming.base.errors import DeclarationError
from streaming.declare.limits import Limits
from streaming.declare.restarts import Failure
from streaming.service.alerts import ALERTS, AlertStatus, evaluate
from streaming.service.lease import Holder
from streaming.service.overview import Overview
from streaming.service.status import ProcessStatus, QueryStatus, State
from streaming.sources.source import SourceBacklog
from tests.support.instants import at
from tests.support.pipelines.beats import pipeline

LIMITS = Limits(watermark_stands_for="30 minutes", rejected_share=0.05, backlog_grows_for="10 minutes")
HEALTHY = ProcessStatus(
    pid=1,
    started=at(0),
    at=at(0),
    passed=at(0),
    phase="running",
    watermark=at(0),
    watermark_moved=at(0),
    rejected_share=0.05,
    backlog=(SourceBacklog(7, "files"),),
)


def minute(count: float) -> datetime:
    return at(60 * count)


def seen(state: State = "running", process: ProcessStatus | None = HEALTHY, why: str = "") -> Overview:
    return Overview(pipeline, state, at(0), why, None, 0, (), process)


def raised(overview: Overview, now: datetime, limits: Limits = LIMITS) -> list[str]:
    return [verdict.name for verdict in evaluate(overview, limits, now) if not verdict.passed]


def test_every_alert_has_a_verdict_whatever_the_state() -> None:
    for overview in (seen(), seen("stopped", None), seen("failed", None, "a bug"), seen("starting", None)):
        assert [verdict.name for verdict in evaluate(overview, LIMITS, minute(1))] == list(ALERTS)


def test_a_stream_that_was_ended_or_paused_on_purpose_alarms_nobody() -> None:
    for state in ("stopped", "paused", "draining", "restarting"):
        assert raised(seen(state, None), minute(1000)) == []


def test_a_failed_stream_is_told_with_its_batch_and_its_files() -> None:
    failure = Failure(
        at=at(0), ran=timedelta(seconds=1), error="division by zero", batch="beats.log 17", origins="17.json"
    )
    failed = replace(seen("failed", None, "division by zero"), failures=(failure,))
    (alert, *_) = evaluate(failed, LIMITS, minute(1))
    assert alert == AlertStatus("stream_is_up", False, "failed in beats.log 17 (17.json): division by zero")


def test_a_stream_whose_supervisor_is_gone_is_told() -> None:
    assert raised(seen("stopped", None, "its supervisor, process 7 on vm, is gone"), minute(1)) == ["stream_is_up"]


def test_a_stream_that_fails_soon_after_each_of_three_starts_is_told_until_it_has_run_for_a_while() -> None:
    def failed(minute_of: float, ran: float = 1) -> Failure:
        return Failure(at=minute(minute_of), ran=timedelta(minutes=ran), error="the JVM ended with code -9")

    def told(state: State, *failures: Failure, after: float = 1) -> list[str]:
        overview = replace(seen(state, HEALTHY if state == "running" else None), failures=failures)
        return raised(overview, failures[-1].at + timedelta(minutes=after))

    soon = (failed(1), failed(3), failed(5))
    for state in ("starting", "running", "restarting"):
        assert told(state, *soon) == ["stream_is_up"]
        assert told(state, *soon, after=9.9) == ["stream_is_up"]
        assert told(state, *soon, after=10) == []
        assert told(state, *soon[1:]) == []
        assert told(state, failed(1), failed(13, ran=10), failed(15)) == []
        assert told(state, failed(1, ran=1000), *soon) == ["stream_is_up"]
    for ended_on_purpose in ("paused", "draining", "stopped"):
        assert told(ended_on_purpose, *soon) == []
    (alert, *_) = evaluate(replace(seen("restarting", None), failures=soon), LIMITS, minute(6))
    assert alert.text == "restarting: the last 3 starts each failed within 10 min: the JVM ended with code -9"


def test_a_watermark_that_stood_while_nobody_ran_the_stream_is_not_told_when_it_begins() -> None:
    holder = Holder("vm", 7, "stream", minute(1000).isoformat(), minute(1000).isoformat(), "token")
    begun = replace(seen(), holder=holder)
    assert raised(begun, minute(1030)) == []
    assert raised(begun, minute(1030.1)) == ["stream_watermark_moves"]


def test_a_watermark_may_stand_for_the_limit_and_not_longer() -> None:
    assert raised(seen(), minute(30)) == []
    assert raised(seen(), minute(30.1)) == ["stream_watermark_moves"]
    assert raised(seen(), minute(31), replace(LIMITS, watermark_stands_for=None)) == []


def test_a_stream_without_a_watermark_yet_is_not_standing() -> None:
    fresh = HEALTHY.model_copy(update={"watermark": None, "watermark_moved": None})
    assert raised(seen(process=fresh), minute(1000)) == []


def test_rejected_rows_may_be_the_limit_and_not_more() -> None:
    more = HEALTHY.model_copy(update={"rejected_share": 0.0501})
    assert raised(seen(process=HEALTHY), minute(1)) == []
    assert raised(seen(process=more), minute(1)) == ["stream_rejects_few"]
    assert raised(seen(process=more), minute(1), replace(LIMITS, rejected_share=None)) == []


def test_o10_a_backlog_may_grow_for_the_limit_and_not_longer() -> None:
    growing = HEALTHY.model_copy(update={"backlog_grows_since": at(0)})
    assert raised(seen(process=growing), minute(10)) == []
    assert raised(seen(process=growing), minute(10.1)) == ["stream_backlog_shrinks"]
    assert raised(seen(process=growing), minute(11), replace(LIMITS, backlog_grows_for=None)) == []


def test_a_view_may_be_behind_its_log_for_the_limit_and_not_longer() -> None:
    queries = {"by_id": QueryStatus(behind=1_200, behind_since=at(0)), "other": QueryStatus(behind=1)}
    slow = seen(process=HEALTHY.model_copy(update={"queries": queries}))
    assert raised(slow, minute(10)) == []
    assert raised(slow, minute(10.1)) == ["stream_views_follow"]
    assert raised(slow, minute(11), replace(LIMITS, view_behind_for=None)) == []
    (alert,) = (each for each in evaluate(slow, LIMITS, minute(12)) if not each.passed)
    assert alert.text == "by_id is behind its logs for 12 min, now by 1,200 batches"
    assert alert.numbers == {"paused_views": 0, "batches_behind": 1_200}


def test_a_row_without_an_answer_is_told_of_for_the_limit_and_not_longer() -> None:
    queries = {"rooms": QueryStatus(failures=2, failed_at=at(0)), "by_id": QueryStatus()}
    failing = seen(process=HEALTHY.model_copy(update={"queries": queries}))
    assert raised(failing, minute(10)) == ["stream_lookups_answer"]
    assert raised(failing, minute(10.1)) == []
    assert raised(failing, minute(1), replace(LIMITS, failures_told_for=None)) == []
    (alert,) = (each for each in evaluate(failing, LIMITS, minute(3)) if not each.passed)
    assert alert.text == "rooms: 2 rows without an answer since the start, the last 3 min ago"


@pytest.mark.parametrize(
    ("declared", "text"),
    [
        ({"rejected_share": 1}, "rejected_share=1 is no share; use one from 0 to below 1"),
        ({"rejected_share": -0.1}, "rejected_share=-0.1 is no share"),
        ({"watermark_stands_for": "soon"}, "'soon' is not an interval"),
        ({"backlog_grows_for": "long"}, "'long' is not an interval"),
    ],
)
def test_a_limit_that_cannot_be_is_refused(declared: dict[str, object], text: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        Limits(**declared)  # type: ignore[arg-type]
    assert text in str(refused.value)
