"""The Dagster instance of this project, and runs that this very process executes on it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg

from platform_assets.errors import InstanceError, RunFailed, UnknownJob
from platform_assets.tags import LAUNCHED_BY_TAG, LOCATION, PROCESS_TAG
from streaming.lake import find_project

_INTERRUPTED = "DagsterExecutionInterruptedError"
_REPOSITORY = ".dagster/repository"
_CONFIG = """\
telemetry: {enabled: false}
nux: {enabled: false}
# A run is a JVM of about a gigabyte; the runs of one pipeline follow each other, for each table has one writer.
concurrency:
  runs:
    # Streams run for months and need a place each; two at most of the others.
    max_concurrent_runs: 25
    tag_concurrency_limits:
      - {key: tidemark/pipeline, limit: 2}
      - {key: tidemark/maintenance, limit: 1}
      - {key: tidemark/stream, value: {applyLimitPerUniqueValue: true}, limit: 1}
      - {key: tidemark/pipeline, value: {applyLimitPerUniqueValue: true}, limit: 1}
run_monitoring: {enabled: true, start_timeout_seconds: 300, cancel_timeout_seconds: 60, poll_interval_seconds: 30}
# Only a worker that died is started again; every step can be repeated.
run_retries: {enabled: true, max_retries: 2, retry_on_asset_or_op_failure: false}
retention:
  schedule: {purge_after_days: 30}
  sensor: {purge_after_days: {skipped: 1, failure: 30, success: 30}}
code_servers: {local_startup_timeout: 360, wait_for_local_processes_on_shutdown: false}
"""


_WORKSPACE = f"""\
load_from:
  - python_module: {{module_name: platform_assets.definitions, location_name: {LOCATION}}}
"""


def project_folder() -> Path:
    """The project that a command is typed in, else the checkout that this module runs from, else the current folder."""
    project, checkout = find_project(), Path(__file__).resolve().parent.parent
    if project is not None:
        return project.folder
    return checkout if (checkout / "pyproject.toml").is_file() else Path.cwd()


def workspace() -> Path:
    """What Dagster is to load: the project's own `workspace.yaml`, or one that names the code location here."""
    own = project_folder() / "workspace.yaml"
    if own.is_file():
        return own
    written = dagster_home() / "workspace.yaml"
    written.write_text(_WORKSPACE)
    return written


def dagster_home() -> Path:
    """The instance's folder: `DAGSTER_HOME`, or `.tidemark/dagster` in the project; configured when it is new.

    Raises:
        InstanceError: it cannot be written.
    """
    home = Path(os.environ.get("DAGSTER_HOME") or project_folder() / ".tidemark" / "dagster").expanduser().resolve()
    config = home / "dagster.yaml"
    try:
        home.mkdir(parents=True, exist_ok=True)
        if not config.exists():
            config.write_text(_CONFIG)
    except OSError as error:
        raise InstanceError(
            f"cannot write Dagster's folder {str(home)!r} ({error.strerror}); make it writable, or point DAGSTER_HOME "
            "to another one."
        ) from error
    return home


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
        raise UnknownJob(f"there is no job {name!r}; declared are: {', '.join(sorted(jobs))}.")
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
    """What the failed steps say, those first that failed on purpose."""
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


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
