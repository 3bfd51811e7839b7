"""Workers of which Spark wants no more: they end without a word."""

from __future__ import annotations

import socket
import subprocess
import sys
import textwrap

from streaming.spark import worker_daemon


def test_a_worker_that_nobody_has_work_for_any_more_ends_without_a_word() -> None:
    program = textwrap.dedent(
        f"""
        import socket
        from {worker_daemon.__name__} import run_task
        spark, worker = socket.socketpair()
        spark.close()
        print(run_task(worker, True))
        """
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (ended.stdout, ended.stderr) == ("1\n", "")


def test_what_spark_has_sent_of_a_task_is_there_still_when_the_task_runs() -> None:
    spark, worker = socket.socketpair()
    with spark, worker:
        spark.sendall(b"task")
        assert worker_daemon._has_more(worker)
        assert worker.recv(4) == b"task"
