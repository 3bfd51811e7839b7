"""When a stream process is taken for hung: a judgement on its pulse, as a pure function."""

from __future__ import annotations

from datetime import timedelta

from streaming.base import interval
from streaming.declare import Pipeline
from streaming.service.pulse import Pulse
from streaming.service.status import LastWords

SILENT_AFTER = timedelta(seconds=60)
"""A process without a pulse for that long is frozen."""

STARTS_WITHIN = timedelta(minutes=3)
"""How long Python and Spark may take to start."""


def hang(pipeline: Pipeline, pulse: Pulse | None, age: timedelta, silence: timedelta) -> LastWords | None:
    """What a process of `age`, whose last `pulse` came `silence` ago, has been waiting for too long; None if nothing.

    Slow storage is no hang: the pulse does not depend on it. Only a batch, the main loop, or a drain that does not get
    on for the pipeline's `hangs_after` is one.
    """
    if pulse is not None and silence > SILENT_AFTER:
        return LastWords(error=f"it has given no sign of life for {silence.total_seconds():.0f} s")
    if pulse is None or pulse.phase == "starting":
        return LastWords(error=f"it did not start within {STARTS_WITHIN}") if age > STARTS_WITHIN else None
    limit = interval(pipeline.hangs_after)
    for query, (batch, since) in pulse.running.items():
        if pulse.at - since > limit:
            return LastWords(
                batch=f"{pipeline.name}.{query} {batch}",
                error=f"the batch hangs: it has been running since {since:%H:%M:%S}",
            )
    if pulse.at - pulse.passed > limit:
        if pulse.phase == "running":
            return LastWords(error=f"its main loop has not come round since {pulse.passed:%H:%M:%S}")
        if pulse.phase == "draining":
            return LastWords(error=f"its drain has not got on since {pulse.passed:%H:%M:%S}")
    return None
