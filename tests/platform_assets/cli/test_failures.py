"""Commands that do not end well, as real processes: what is left on the terminal, and what is in the log file."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from platform_assets.cli import interrupts
from streaming.lake.lake import Lake
from streaming.views.results import read_first
from tests.platform_assets.conftest import Tidemark
from tests.support.feeds import land, land_all
from tests.support.instants import at
from tests.support.pipelines.beats import land_damaged
from tests.support.pipelines.beats import pipeline as beats
from tests.support.pipelines.gated import counts
from tests.support.pipelines.gated import pipeline as gated
from tests.support.processes import short_lived

pytestmark = pytest.mark.processes

PROJECT = Path(__file__).parents[3]
TRACES = re.compile(r"Traceback|^\s+at (org|java|py4j)\.|Py4J|ERROR|WARN|JAVA_TOOL_OPTIONS", re.MULTILINE)


@pytest.fixture(autouse=True)
def pipelines_of_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_PIPELINES", "tests.support.pipelines")


def typed(lake: Lake, *command: str, hang: int = 0) -> subprocess.Popen[str]:
    """A command in a process group of its own, as a shell starts it; batches of beats may hang for milliseconds."""
    return subprocess.Popen(
        [sys.executable, "-c", "from platform_assets.cli import main; main()", *command],
        env={
            **os.environ,
            "PYTHONPATH": str(PROJECT),
            "TIDEMARK_HOME": lake.root,
            "TIDEMARK_MASTER": "local[2]",
            "TIDEMARK_SPARK_DRIVER_MEMORY": "1g",
            **short_lived(f"-Dbeats.hang={hang}"),
        },
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def beat(lake: Lake, value: int) -> None:
    land(beats.stream.source.location(lake), [{"id": "a", "at": at(0).isoformat(), "value": value}])


@pytest.mark.long
def test_a_batch_that_fails_is_a_paragraph_and_its_trace_is_in_the_file_it_names(lake: Lake) -> None:
    land_damaged(Path(beats.stream.source.location(lake)), "0000")
    command = typed(lake, "run", "beats")
    text, _ = command.communicate(timeout=300)
    assert command.returncode == 1
    assert "0000.json.snappy cannot be read" in text
    assert not TRACES.search(text), text
    (log,) = (Path(lake.root) / "_logs").glob("run-*.log")
    assert f"The trace is in {log}." in text
    assert "Traceback" in log.read_text() and "at org.apache.spark" in log.read_text()


@pytest.mark.long
def test_ctrl_c_in_a_batch_that_hangs_prints_one_line_and_leaves_no_file(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    beat(lake, value=-1)
    command = typed(lake, "run", "beats", hang=600_000)
    planned = Path(lake.checkpoint(beats.stream, "log")) / "offsets" / "0"
    deadline = time.monotonic() + 300
    while not planned.exists():
        assert time.monotonic() < deadline and command.poll() is None, command.communicate(timeout=1)
        time.sleep(0.1)
    os.killpg(command.pid, signal.SIGINT)
    text, _ = command.communicate(timeout=60)
    assert command.returncode == 130
    monkeypatch.setattr(sys, "argv", ["tidemark", "run", "beats"])
    assert text.split() == interrupts.interrupted_line().split()
    assert not [*(Path(lake.root) / "_logs").glob("*")]


def test_ctrl_c_in_a_run_lets_the_batch_end_that_runs_and_begins_no_other(
    spark: SparkSession, lake: Lake, tidemark: Tidemark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch of the view waits at a gate, which opens only once the interrupt is there."""
    monkeypatch.setattr(interrupts, "_BATCH_ENDS_WITHIN", 120.0)
    gate, reader_is_there = tmp_path / "gate", threading.Event()
    os.mkfifo(gate)
    first, second = ({"id": "a", "at": at(second).isoformat(), "gate": str(gate)} for second in (0, 10))
    land_all(lake, gated.stream, [first], [second])

    def interrupt_at_the_gate() -> None:
        with gate.open("w"):
            reader_is_there.set()
            os.kill(os.getpid(), signal.SIGINT)

    at_the_gate = threading.Thread(target=interrupt_at_the_gate, daemon=True)
    at_the_gate.start()
    code, text = tidemark("run gated")
    assert (code, reader_is_there.is_set(), "Interrupted. What was committed stays" in text) == (130, True, True)
    assert read_first(spark, lake, counts).count() == 1
    code, text = tidemark("run gated")
    assert (code, "Next: tidemark show gated current" in text) == (0, True)


def test_what_nobody_foresaw_is_a_paragraph_too(
    lake: Lake, tidemark: Tidemark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMARK_PIPELINES", "tests.support.pipelines")
    Path(lake.root).mkdir()
    monkeypatch.setattr("platform_assets.cli.audit.find_pipeline", lambda name: 1 // 0)
    code, text = tidemark("audit beats")
    (log,) = (Path(lake.root) / "_logs").glob("audit-*.log")
    assert (code, "Traceback" in text) == (70, False)
    assert "ZeroDivisionError: integer division or modulo by zero This was not foreseen" in text
    assert f"The trace is in {log}." in text and "1 // 0" in log.read_text()


def test_a_mistake_of_the_user_needs_no_file(lake: Lake, tidemark: Tidemark) -> None:
    Path(lake.root).mkdir()
    code, text = tidemark("run beets")
    assert (code, "there is no pipeline 'beets'" in text, "trace" in text) == (1, True, False)
    assert not [*(Path(lake.root) / "_logs").glob("*")]
