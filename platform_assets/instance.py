"""The Dagster instance of this project."""

from __future__ import annotations

import os

import dagster as dg

from platform_assets.home import dagster_home
from platform_assets.tags import PROCESS_TAG


def open_instance() -> dg.DagsterInstance:
    """The persistent instance, which the caller closes; runs whose process died are marked as failed.

    Dagster watches the workers it launches, but not a process that runs a job by itself.
    """
    instance = dg.DagsterInstance.from_config(str(dagster_home()))
    for run in instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED])):
        process = run.tags.get(PROCESS_TAG)
        if process is not None and not _alive(int(process)):
            instance.report_run_failed(run, f"process {process}, which executed this run, is gone")
    return instance


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
