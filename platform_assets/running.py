"""Runs that this very process executes, on the Dagster instance of the project."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import dagster as dg

from platform_assets.errors import RunFailed, UnknownJob
from platform_assets.tags import LAUNCHED_BY_TAG, LOCATION, PROCESS_TAG

_INTERRUPTED = "DagsterExecutionInterruptedError"
_REPOSITORY = ".dagster/repository"


def run_job(
    instance: dg.DagsterInstance,
    definitions: dg.Definitions,
    name: str,
    run_config: Mapping[str, Any] | None = None,
    tags: Mapping[str, str] | None = None,
) -> str:
    """Execute a job of the `definitions` in this process, so that several share one JVM; returns the run's id.

    The UI shows the run as it does any other.

    Raises:
        UnknownJob: there is none of that name.
        RunFailed: the run ended without success.
        KeyboardInterrupt: Ctrl-C ended it.
    """
    jobs = {job.name: job for job in definitions.get_repository_def().get_all_jobs() if not job.name.startswith("__")}
    if name not in jobs:
        raise UnknownJob(
            f"there is no job {name!r}; declared are: {', '.join(sorted(jobs))}.", choices=tuple(sorted(jobs))
        )
    result = jobs[name].execute_in_process(
        instance=instance,
        # Dagster's own lines are in the run's log; this console is for progress.
        run_config={**(run_config or {}), "loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
        tags={
            # Without it the UI would say that it was launched by hand.
            LAUNCHED_BY_TAG: "tidemark",
            **(tags or {}),
            PROCESS_TAG: str(os.getpid()),
            _REPOSITORY: f"__repository__@{LOCATION}",
        },
        raise_on_error=False,
    )
    if not result.success:
        reason = _reason(result)
        # Dagster takes the signal, and tells of it as of any error in a step.
        if _INTERRUPTED in reason:
            raise KeyboardInterrupt
        raise RunFailed(f"run {result.run_id} of {name!r} failed: {reason}")
    return result.run_id


def _reason(result: dg.ExecuteInProcessResult) -> str:
    """The messages of the failed steps, those first that failed on purpose."""
    reasons, crashes = [], []
    for event in result.all_events:
        if event.is_step_failure:
            failure, error = event.step_failure_data, event.step_failure_data.error
            while error is not None and error.cause is not None:
                error = error.cause
            meant = failure.user_failure_data
            if meant is not None and meant.description:
                reasons.append(f"step {event.step_key!r}: {meant.description.strip()}")
            elif error is not None:
                crashes.append(f"step {event.step_key!r}: {error.message.strip()}")
    return "\n".join([*reasons, *crashes]) or "no step says why; `tidemark ui` shows the run's log."
