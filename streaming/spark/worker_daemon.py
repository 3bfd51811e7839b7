"""The process of which Spark's Python workers are forks; `spark.python.daemon.module` names this module.

After each task Spark's own one has a worker look through all of its objects for garbage. Nearly all belong to modules,
which stay: looking at them takes longer than what a small task computes (see FACTS.md, Costs).
"""

from __future__ import annotations

import gc
import socket
import sys

from pyspark import daemon

_run_task = daemon.worker
_modules_looked_at = 0


def run_task(sock: socket.socket, authenticated: bool) -> int:
    """Run a task, and leave out of later looks for garbage whatever it has imported; returns Spark's exit code."""
    global _modules_looked_at
    code = _run_task(sock, authenticated)
    if len(sys.modules) != _modules_looked_at:
        _modules_looked_at = len(sys.modules)
        # What is garbage by now would stay for ever.
        gc.collect()
        gc.freeze()
    return code


if __name__ == "__main__":
    daemon.worker = run_task
    daemon.manager()
