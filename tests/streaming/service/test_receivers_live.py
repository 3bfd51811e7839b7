"""A pipeline with a receiver under its supervisor: real processes, killed one after the other."""

from __future__ import annotations

import os
import signal

import psutil
import pytest
from pyspark.sql import SparkSession

from streaming import Lake, log
from streaming.service.overview import look
from tests.streaming.service.streams import process_of, supervised, until
from tests.support.pipelines.received import PORT, pipeline
from tests.support.receiving import landed
from tests.support.runs import tuples
from tests.support.servers import line_server

pytestmark = pytest.mark.processes


@pytest.mark.long
def test_s16_lines_of_a_socket_are_in_the_log_once_though_every_process_is_killed_after_landing(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ingested() -> int:
        return sum(batch.summary.rows for batch in log.read_batches(lake, pipeline.stream))

    def receiver() -> int:
        (status,) = look(lake, pipeline).receivers
        return status.pid if status.state == "receiving" else 0

    with line_server() as server:
        monkeypatch.setenv(PORT, str(server.port))
        with supervised(lake, pipeline) as supervisor:
            server.send(b"a\nb\nc\n")
            until(lambda: landed(lake) == [["a", "b", "c"]], "landed", lake)
            first, engine = receiver(), process_of(supervisor)
            os.kill(engine, signal.SIGKILL)
            os.kill(first, signal.SIGKILL)
            until(lambda: ingested() == 3, "ingested", lake)
            until(lambda: receiver() not in (0, first), "received by another process", lake)

            # It goes on while the stream is paused: what a socket sends does not wait.
            supervisor.ask("pause")
            until(lambda: supervisor.status.state == "paused", "paused", lake)
            server.send(b"d\ne\nf\n")
            until(lambda: len(landed(lake)) == 2, "landed while the stream is paused", lake)
            server.send(b"g\n")
            last = receiver()
        assert landed(lake) == [["a", "b", "c"], ["d", "e", "f"], ["g"]]
        assert not psutil.pid_exists(last)
        (status,) = look(lake, pipeline).receivers
        assert (status.state, status.landed) == ("stopped", 4)

    rows = log.valid(log.read_log(spark, lake, pipeline.stream))
    assert tuples(rows, "line") == [("a",), ("b",), ("c",)]
