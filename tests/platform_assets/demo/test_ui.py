"""Dagster as `tidemark ui` starts it, as real processes."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from platform_assets.demo.feeds import free_port
from platform_assets.demo.ui import HOST

pytestmark = pytest.mark.processes

PROJECT = Path(__file__).resolve().parents[3]
DEADLINE = 240


@pytest.mark.long
def test_a_termination_under_nohup_leaves_no_process_of_dagster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "dagster"))
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path / "lake"))
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))
    port = free_port()
    (tmp_path / "ui.py").write_text(
        f"from rich.console import Console; from platform_assets.demo.ui import start_ui; start_ui(Console(), {port})"
    )
    # A script's shell has no job control: what it starts in the background ignores SIGINT from then on.
    output = tmp_path / "output"
    command = f"nohup {sys.executable} {tmp_path}/ui.py > {output} 2>&1 & echo $!"
    started = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True, cwd=PROJECT)
    process = psutil.Process(int(started.stdout))
    family = [process]
    try:
        deadline = time.monotonic() + DEADLINE
        while not _answers(port):
            assert process.is_running() and time.monotonic() < deadline, output.read_text()[-4000:]
            time.sleep(0.5)
        family += process.children(recursive=True)
        assert len(family) > 2
        process.terminate()
        _, alive = psutil.wait_procs(family, timeout=60)
        assert [member.cmdline() for member in alive] == [], output.read_text()[-4000:]
    finally:
        for member in family:
            if member.is_running():
                member.kill()


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0
