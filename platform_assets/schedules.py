"""What happens by the clock on the wall."""

from __future__ import annotations

import dagster as dg

from streaming import Pipeline


def corrections_schedule(pipeline: Pipeline, job: dg.JobDefinition) -> dg.ScheduleDefinition:
    """Hourly, the planner looks for late pairs by itself: it also finds what a failed run left behind."""
    return dg.ScheduleDefinition(
        name=f"{pipeline.name}_corrections_hourly",
        job=job,
        cron_schedule="0 * * * *",
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=f"Corrects the days of {pipeline.name} whose late pairs are newer than their correction.",
    )
