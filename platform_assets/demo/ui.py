"""Dagster's user interface and daemon, on this machine only."""

from __future__ import annotations

import os
import signal
import socket
import sys
from typing import NoReturn

from rich.console import Console

from platform_assets.errors import InstanceError
from platform_assets.home import dagster_home, project_folder, workspace
from platform_assets.instance import open_instance
from streaming import Settings

HOST = "127.0.0.1"


def start_ui(console: Console, port: int = 3000) -> NoReturn:
    """Replace this process by `dagster dev`: pages, sensors and schedules, until it is interrupted or terminated.

    Raises:
        InstanceError: the port is taken.
    """
    command, environment = dagster_dev(port)
    console.print(f"Dagster on http://{HOST}:{port} in a few seconds; Ctrl-C stops it.")
    # A shell without job control ignores SIGINT for what it starts in the background. That outlives `exec`, and
    # Dagster takes SIGTERM as it takes SIGINT: it would ignore both.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.execve(sys.executable, command, environment)


def dagster_dev(port: int) -> tuple[list[str], dict[str, str]]:
    """The command that serves Dagster on `port`, and its environment.

    Raises:
        InstanceError: the port is taken.
    """
    with socket.socket() as probe:
        if probe.connect_ex((HOST, port)) == 0:
            raise InstanceError(
                f"port {port} of {HOST} is taken, perhaps by another `tidemark ui`",
                "stop that one, or choose another with --port.",
            )
    # Marks what a killed process left behind before the queue counts it.
    open_instance().dispose()
    environment = {
        **os.environ,
        "DAGSTER_HOME": str(dagster_home()),
        # Runs have other working folders.
        "TIDEMARK_HOME": Settings().lake.root,
        "TIDEMARK_PROJECT": str(project_folder()),
    }
    command = ["dagster", "dev", "-w", str(workspace()), "-h", HOST, "-p", str(port), "--log-level", "warning"]
    return [sys.executable, "-W", "ignore", "-m", *command], environment
