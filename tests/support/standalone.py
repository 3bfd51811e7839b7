"""A standalone Spark cluster on this machine: a master and workers, each a process that can be killed by itself."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pyspark

from platform_assets.demo.feeds import free_port

_STARTS_WITHIN = 60.0
_HOST = "127.0.0.1"
_PAGES = re.compile(r"MasterWebUI .*started at (http://\S+)")
"""What the master says of its pages; it takes another port than it was given where that is taken."""


class Standalone:
    """A master that remembers its workers and applications when it is started again, and workers of one core each.

    `environment` are further variables of the workers, which hand them on to executors; Python code that is not on
    their `PYTHONPATH` has to come with the application.

    Raises:
        RuntimeError: a process does not start, with what it said.
    """

    def __init__(self, folder: Path, workers: int, environment: Mapping[str, str] | None = None) -> None:
        self._folder = folder
        self._port = free_port()
        self._environment = dict(environment or {})
        self._master: subprocess.Popen[bytes] | None = None
        self._workers: list[subprocess.Popen[bytes] | None] = [None] * workers

    @property
    def url(self) -> str:
        """What `TIDEMARK_MASTER` is to be."""
        return f"spark://{_HOST}:{self._port}"

    def __enter__(self) -> Standalone:
        try:
            self.start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._end()

    def _end(self) -> None:
        for process in (*self._workers, self._master):
            _kill(process)

    def start(self) -> None:
        """Start whatever does not run, and wait for it."""
        if self._master is None:
            self._master = self._begin("master.Master", "--port", str(self._port), "--webui-port", "0")
        for number, worker in enumerate(self._workers):
            if worker is None:
                arguments = ("--webui-port", "0", "-c", "1", "-m", "1g", "-d", str(self._folder / f"work-{number}"))
                self._workers[number] = self._begin("worker.Worker", *arguments, self.url)
        deadline = time.monotonic() + _STARTS_WITHIN
        while self._alive() < len(self._workers):
            ended = [each for each in (self._master, *self._workers) if each is None or each.poll() is not None]
            if ended or time.monotonic() > deadline:
                logs = "\n".join(log.read_text()[-1500:] for log in self._folder.glob("*.log"))
                raise RuntimeError(f"the cluster does not start:\n{logs}")
            time.sleep(0.1)

    def kill(self, victim: str) -> None:
        """Kill the `master`, the last `worker` or its `executor`, as a power cut would; `start` brings back the first
        two, and the cluster the last.

        Raises:
            LookupError: there is no executor.
        """
        if victim == "master":
            _kill(self._master)
            self._master = None
        elif victim == "worker":
            _kill(self._workers[-1])
            self._workers[-1] = None
        else:
            worker = self._workers[-1]
            processes = [] if worker is None else executors(worker.pid)
            if not processes:
                raise LookupError("the worker has no executor")
            for executor in processes:
                executor.kill()

    @property
    def has_executors(self) -> bool:
        """Whether every worker that runs has one."""
        return all(worker is None or executors(worker.pid) for worker in self._workers)

    def executors(self) -> list[psutil.Process]:
        """Those of all workers that run."""
        return [executor for worker in self._workers if worker is not None for executor in executors(worker.pid)]

    def _begin(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        self._folder.mkdir(parents=True, exist_ok=True)
        kept = f"-Dspark.deploy.recoveryMode=FILESYSTEM -Dspark.deploy.recoveryDirectory={self._folder / 'recovery'}"
        options = f"{kept} -Dspark.worker.timeout=15 -Dspark.master.rest.enabled=false -XX:+UseSerialGC"
        ours = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": options, "SPARK_LOCAL_IP": _HOST}
        launcher = f"{Path(pyspark.__file__).parent}/bin/spark-class"
        with (self._folder / f"{name.partition('.')[0]}-{time.monotonic_ns()}.log").open("wb") as log:
            return subprocess.Popen(
                [launcher, f"org.apache.spark.deploy.{name}", "--host", _HOST, *arguments],
                env=os.environ | self._environment | ours,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _alive(self) -> int:
        """The workers that the master knows of."""
        logs = sorted(self._folder.glob("master-*.log"), key=lambda log: log.stat().st_mtime_ns)
        pages = _PAGES.findall(logs[-1].read_text())
        if not pages:
            return -1
        with suppress(OSError, ValueError), urllib.request.urlopen(f"{pages[-1]}/json/", timeout=5) as page:
            status: dict[str, Any] = json.load(page)
            return sum(worker["state"] == "ALIVE" for worker in status["workers"])
        return -1


def executors(pid: int) -> list[psutil.Process]:
    """The executors among all that a process has started."""
    processes = []
    for child in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "CoarseGrainedExecutorBackend" in " ".join(child.cmdline()):
                processes.append(child)
    return processes


def _kill(process: subprocess.Popen[bytes] | None) -> None:
    if process is not None and process.poll() is None:
        os.kill(process.pid, signal.SIGKILL)
    if process is not None:
        process.wait()
