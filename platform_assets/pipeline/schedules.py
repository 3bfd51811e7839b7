"""What happens by the clock on the wall."""

from __future__ import annotations

import dagster as dg

from streaming import Pipeline


def corrections_schedule(pipeline: Pipeline, job: dg.JobDefinition) -> dg.ScheduleDefinition:
    """Hourly, the planner looks for late pairs by itself: it also finds what a failed run left behind."""
    corrected = f"Corrects the days of {pipeline.name} whose late pairs are newer than their correction."
    return _hourly(f"{pipeline.name}_corrections_hourly", job, 0, corrected)


def maintenance_schedule(pipeline: Pipeline, job: dg.JobDefinition) -> dg.ScheduleDefinition:
    """Hourly: a stream writes a few files a second, and readers pay for each."""
    return _hourly(
        f"{pipeline.name}_maintenance_hourly", job, 30, f"Keeps the tables of {pipeline.name} quick to read."
    )


def _hourly(name: str, job: dg.JobDefinition, minute: int, description: str) -> dg.ScheduleDefinition:
    return dg.ScheduleDefinition(
        name=name,
        job=job,
        cron_schedule=f"{minute} * * * *",
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=description,
    )
