"""Golden test of a stream's log: every line names pipeline, run and batch, none is of a record."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from streaming import Ascending, Files, Json, Pipeline, Stream
from streaming.base.errors import SettingsError
from streaming.lake.lake import Lake
from streaming.lake.settings import Settings
from streaming.log import QUERY
from streaming.service.logs import About, JsonLines, begin_run, current_run, in_batch
from streaming.service.process import origins
from streaming.service.status import ControlFolder, LastWords
from tests.streaming.service.streams import STREAM, supervised, until
from tests.support.feeds import land
from tests.support.instants import at
from tests.support.pipelines.beats import land_damaged, pipeline
from tidemark.pytest_plugin import JVM_OPTIONS

ROWS = 2_000


@pytest.mark.long
@pytest.mark.processes
def test_o18_every_line_names_pipeline_run_and_batch_and_none_is_of_a_record(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch of 2,000 rows, then one that crashes whenever it is run: two runs, and the stream has failed."""
    # Java says so on its stderr where it takes options from that variable.
    monkeypatch.delenv("JAVA_TOOL_OPTIONS")
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", JVM_OPTIONS)
    monkeypatch.setenv("TIDEMARK_LOG_LEVEL", "debug")
    monkeypatch.setenv("TIDEMARK_LOG_FORMAT", "json")
    landing = Path(STREAM.source.location(lake))
    land(landing, [{"id": "a", "at": at(0).isoformat(), "value": 1}] * ROWS, name="0.json")
    output = ControlFolder(lake, pipeline).output
    with supervised(lake) as supervisor:
        until(lambda: output.is_file() and "rows committed" in output.read_text(), "committed", lake)
        land_damaged(landing, "1")
        until(lambda: supervisor.status.state == "failed", "failed", lake)

    output_lines = output.read_text().splitlines()
    assert {line for line in output_lines if not line.startswith("{")} <= {
        "WARNING: Using incubator modules: jdk.incubator.vector"
    }
    lines = [json.loads(line) for line in output_lines if line.startswith("{")]
    assert {line["pipeline"] for line in lines} == {"beats"}
    assert len({line["run"] for line in lines}) == 2 and all(len(line["run"]) == 12 for line in lines)
    committed = [line for line in lines if "rows committed" in line["message"]]
    assert [(line["query"], line["batch"], line["message"]) for line in committed if line["query"] == "log"] == [
        ("log", 0, "2,000 rows committed as batch 0 of the log, 0 of them rejected")
    ]
    ended = [line for line in lines if line["level"] == "ERROR" and line["logger"] == "tidemark"]
    assert [(line["query"], line["batch"]) for line in ended] == [("log", 1), ("log", 1)]
    # Spark's own word on it is a line too, with the batch of the task and the whole trace.
    spark = [line for line in lines if line["logger"].endswith(".Executor")]
    assert spark and {(line["query"], line["batch"]) for line in spark} == {("log", 1)}
    assert all("FAILED_READ_FILE" in line["trace"] for line in spark)
    assert len(lines) < 100


@pytest.mark.processes
def test_an_error_that_nobody_foresaw_is_told_with_the_lines_of_code_and_without_a_row(tmp_path: Path) -> None:
    script = tmp_path / "process.py"
    script.write_text(
        """
import os, sys
from streaming import Ascending, Files, Json, Lake, Pipeline, Settings, Stream
from streaming.service.logs import configure_logs
from streaming.service.process import StreamProcess

class Odd(Files):
    @property
    def jars(self):
        raise KeyError(row)

row = "two\\nlines"
stream = Stream(name="odd", source=Odd("landing"), format=Json("at timestamp"), event_time="at", clock=Ascending())
configure_logs(Settings(), "odd")
nowhere = os.open(os.devnull, os.O_WRONLY)
sys.exit(StreamProcess(Lake(sys.argv[1]), Pipeline(stream), os.getppid(), nowhere, nowhere).run())
"""
    )
    ended = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "lake")], capture_output=True, text=True, check=False
    )
    told, *frames = ended.stderr.splitlines()
    assert ended.returncode == 1
    assert told.endswith(r"KeyError: 'two\nlines'")
    assert f'      File "{script}", line 10, in jars' in frames
    assert all(line.startswith("    ") for line in frames) and "two" not in "".join(frames)


def test_the_last_words_of_a_process_fit_the_pipe_that_is_read_when_it_is_gone(tmp_path: Path) -> None:
    class Long(Files):
        def describe_batch(self, checkpoint: str, query_batch: int) -> str:
            return "\x01" * 100_000

    stream = Stream(
        name="long", source=Long("landing"), format=Json("at timestamp"), event_time="at", clock=Ascending()
    )
    told = origins(Lake(str(tmp_path)), Pipeline(stream), QUERY, 0)
    assert 1_000 < len(told) < len(LastWords(error=told, origins=told).model_dump_json()) < 65_536


def test_o18_outside_a_batch_there_is_none_and_a_run_is_that_of_the_thread() -> None:
    record = logging.LogRecord("tidemark", logging.INFO, "", 0, "%s of %s", ("two", "three"), None)
    with in_batch("log", 17):
        About("beats", "1f").filter(record)
    assert {
        "pipeline": "beats",
        "run": "1f",
        "query": "log",
        "batch": 17,
        "message": "two of three",
    }.items() <= json.loads(JsonLines().format(record)).items()

    before = current_run()
    begin_run("2f")
    try:
        raise ValueError("odd")
    except ValueError:
        record = logging.LogRecord("tidemark", logging.INFO, "", 0, "ended", (), sys.exc_info())
    finally:
        About("beats", "1f").filter(record)
        begin_run(before)
    line = json.loads(JsonLines().format(record))
    assert (line["run"], line["query"], line["batch"]) == ("2f", None, None)
    assert line["trace"].endswith("ValueError: odd")


@pytest.mark.parametrize(
    ("name", "value", "valid"),
    [("TIDEMARK_LOG_LEVEL", "loud", "DEBUG, INFO, WARNING, ERROR"), ("TIDEMARK_LOG_FORMAT", "xml", "text, json")],
)
def test_o18_a_level_or_format_that_is_none_is_refused_with_those_there_are(
    name: str, value: str, valid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError, match=f"{name}='{value}' is none of {valid}"):
        Settings()
