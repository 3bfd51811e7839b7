"""`tidemark receive` as it is typed, and receivers in `tidemark status`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from streaming.lake.lake import Lake
from tests.platform_assets.conftest import Tidemark
from tests.support.pipelines.received import PORT
from tests.support.receiving import landed
from tests.support.servers import line_server
from tests.support.waiting import until

PROJECT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def pipelines_of_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_PIPELINES", "tests.support.pipelines")


def test_a_pipeline_without_receivers_says_how_to_declare_one(tidemark: Tidemark) -> None:
    code, text = tidemark("receive beats")
    assert (code, "'beats' has no receivers; declare one, such as Pipeline(..., receivers=(" in text) == (1, True)
    code, text = tidemark("receive received lines")
    assert (code, "has no receiver 'lines'; its receivers: lines_in" in text) == (1, True)


@pytest.mark.sampled
@pytest.mark.processes
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_receiving_in_a_terminal_ends_as_asked_lands_what_came_and_says_what_to_type_next(
    lake: Lake, tidemark: Tidemark, ending: signal.Signals
) -> None:
    with line_server() as server:
        typed = subprocess.Popen(
            [sys.executable, "-c", "from platform_assets.cli import main; main()", "receive", "received"],
            env={**os.environ, "TIDEMARK_HOME": lake.root, "PYTHONPATH": str(PROJECT), PORT: str(server.port)},
            stdout=subprocess.PIPE,
            text=True,
        )
        server.send(b"a\nb\n")
        until(lambda: b"b\n" in _hidden(lake), "received", within=60)
        code, text = tidemark("status received --json")
        (receiver,) = json.loads(text)["pipelines"][0]["receivers"]
        assert (code, receiver["name"], receiver["state"]) == (0, "lines_in", "receiving")
        typed.send_signal(ending)
        printed, _ = typed.communicate(timeout=30)
    assert (typed.returncode, landed(lake)) == (0, [["a", "b"]])
    assert f"lines_in: stopped, 2 rows from tcp://127.0.0.1:{server.port}, 2 landed in 1 file" in printed
    assert "Next: tidemark run received" in printed
    code, text = tidemark("status received")
    assert (code, "2 in 1 file" in text, "at most once" in text) == (0, True, True)


def _hidden(lake: Lake) -> bytes:
    return b"".join(path.read_bytes() for path in Path(lake.path("landing/lines/.lines_in")).glob("lines_in-*"))
