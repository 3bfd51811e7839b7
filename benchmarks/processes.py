"""Processes to be killed, and what must be gone afterwards."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from streaming.spark import worker_daemon

ORPHANS_GONE_WITHIN = 15.0
"""Seconds after a kill."""


def code_of(project: Path) -> dict[str, str]:
    """The environment in which Python finds this project's code, wherever it is started.

    `python -m` looks in the current folder before it looks anywhere else, and so would measure that one's code.
    """
    return {"PYTHONPATH": str(project), "PYTHONSAFEPATH": "1"}


def family(pid: int) -> list[psutil.Process]:
    """The process and all it has started; empty where it is gone."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def cpu_seconds(pid: int | None = None) -> float:
    """CPU seconds so far of a process, this one if none is named, and of all it has started, those that ended too.

    Spark's Python workers end when nobody has had work for them for a minute, and the daemon that forks them does not
    wait for them, so that Linux adds their time to no process: they count as they were when this was asked last.
    """
    root, burnt = pid or os.getpid(), 0.0
    ended = _workers.setdefault(root, {})
    for member in family(root):
        try:
            seconds = sum(member.cpu_times()[:4])
            if _is_daemon(member) and _is_daemon(member.parent()):
                ended[member] = seconds
            else:
                burnt += seconds
        except psutil.NoSuchProcess:
            continue
    return burnt + sum(ended.values())


_workers: dict[int, dict[psutil.Process, float]] = {}
"""CPU seconds of Spark's Python workers, by the process that has started them through others."""


def _is_daemon(process: psutil.Process | None) -> bool:
    """True of the process that forks Spark's Python workers, and of these."""
    return process is not None and not {"pyspark.daemon", worker_daemon.__name__}.isdisjoint(command_line(process))


def peak_memory(process: psutil.Process) -> int:
    """The most bytes of memory that it ever had; 0 where it has ended."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
    except FileNotFoundError:
        return 0
    return 1024 * next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")), 0)


def command_line(process: psutil.Process) -> list[str]:
    """Its command line; empty where it has ended."""
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def jvms(members: Sequence[psutil.Process]) -> list[psutil.Process]:
    """Those of `members` that are Java."""
    return [member for member in members if "java" in "".join(command_line(member)[:1])]


def alive(process: psutil.Process) -> bool:
    """True if the process still runs; a zombie does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def orphans(members: Sequence[psutil.Process]) -> list[str]:
    """Those of `members` that live on after the time they have to go, by number and the beginning of their command."""
    until(lambda: not any(map(alive, members)), ORPHANS_GONE_WITHIN)
    return [f"{member.pid} {' '.join(command_line(member)[:4])}" for member in members if alive(member)]


def until(condition: Callable[[], object], within: float) -> float | None:
    """The seconds until `condition` held, or None where it did not `within` as many."""
    started = time.monotonic()
    while not condition():
        if time.monotonic() - started > within:
            return None
        time.sleep(0.1)
    return time.monotonic() - started


def writers() -> int:
    """The number of processes of streams on this machine."""
    parents = {
        process.pid: process.info["ppid"]
        for process in psutil.process_iter(["cmdline", "ppid", "status"])
        if (process.info["cmdline"] or [])[3:5] == ["streaming.service", "process"]
        and process.info["status"] != psutil.STATUS_ZOMBIE
    }
    # A process that starts a JVM forks first, and a fork has its parent's command line for a moment.
    return sum(parent not in parents for parent in parents.values())
