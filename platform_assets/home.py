"""The folder of the Dagster instance and the workspace it loads, written where they are new."""

from __future__ import annotations

import os
from pathlib import Path

from platform_assets.errors import InstanceError
from platform_assets.tags import LOCATION
from streaming.lake import find_project

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
    """The file for Dagster to load: the project's own `workspace.yaml`, or one that names the code location here."""
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
            f"cannot write Dagster's folder {str(home)!r} ({error.strerror})",
            "make it writable, or point DAGSTER_HOME to another one.",
        ) from error
    return home
