"""How long a batch may take, judged on the pulse of its process."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from streaming.declare.restarts import Failure
from streaming.service.alerts import evaluate
from streaming.service.overview import Overview
from streaming.service.progress import hang
from streaming.service.pulse import Pulse
from tests.support.instants import at
from tests.support.pipelines.beats import pipeline

AGE, SILENCE = timedelta(hours=1), timedelta(seconds=1)


def test_o1_a_batch_may_outlast_its_trigger_and_run_for_ten_minutes_and_one_that_runs_longer_alerts() -> None:
    every_ten_seconds = replace(pipeline, trigger="10 seconds")

    def judged(seconds: float) -> str | None:
        pulse = Pulse(at=at(seconds), phase="running", passed=at(seconds), running={"log": (7, at(0))})
        words = hang(every_ten_seconds, pulse, AGE, SILENCE)
        return None if words is None else f"{words.batch}: {words.error}"

    assert [judged(seconds) for seconds in (10, 599, 600)] == [None, None, None]
    error = judged(600.001)
    assert error == "beats.log 7: the batch hangs: it has been running since 00:00:00"
    # Where it hangs again and again, its pipeline has failed.
    failure = Failure(at(601), timedelta(seconds=1), error, "beats.log 7", "landing/beats/7.json")
    failed = Overview(every_ten_seconds, "failed", at(601), error, None, 2, (failure,), None)
    (alert,) = (each for each in evaluate(failed, pipeline.limits, at(602)) if not each.passed)
    assert alert.text.startswith("failed in beats.log 7 (landing/beats/7.json): beats.log 7: the batch hangs")
