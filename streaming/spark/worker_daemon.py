"""The process of which Spark's Python workers are forks; `spark.python.daemon.module` names this module.

After each task Spark's own one has a worker look through all of its objects for garbage. Nearly all belong to modules,
which stay: looking at them takes longer than what a small task computes (see FACTS.md, Costs). Spark ends a worker that
had no work for a minute, and its own one then fails to answer and prints a trace; here it ends without a word.
"""

from __future__ import annotations

import gc
import socket
import sys

from pyspark import daemon

_run_task = daemon.worker
_modules_looked_at = 0


def run_task(sock: socket.socket, authenticated: bool) -> int:
    """Wait for a task and run it, and leave out of later looks for garbage whatever it has imported.

    Returns Spark's exit code: 1 where no task comes any more.
    """
    global _modules_looked_at
    if not _has_more(sock):
        return 1
    try:
        code = _run_task(sock, authenticated)
    except ConnectionError:
        # Spark has given the task up, or is gone: nobody is left to be answered.
        return 1
    if len(sys.modules) != _modules_looked_at:
        _modules_looked_at = len(sys.modules)
        # What is garbage by now would stay for ever.
        gc.collect()
        gc.freeze()
    return code


def _has_more(sock: socket.socket) -> bool:
    """Wait until there is something to be read, which stays there; False where the other side has gone."""
    try:
        return bool(sock.recv(1, socket.MSG_PEEK))
    except OSError:
        return False


if __name__ == "__main__":
    daemon.worker = run_task
    daemon.manager()
