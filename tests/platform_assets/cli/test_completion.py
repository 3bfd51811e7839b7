"""What a shell proposes as a command is typed: by the protocol of the shell, without Java and without a session."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from platform_assets.cli import main
from platform_assets.cli.app import COMMANDS
from tests.support.packages import importable, write_modules

PROJECT = Path(__file__).parents[3]


def proposed(words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What bash proposes for the last of the words."""
    monkeypatch.setenv("_TIDEMARK_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
    monkeypatch.setattr("sys.argv", ["tidemark"])
    with pytest.raises(SystemExit):
        main()
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out.split()


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (
            "tidemark re",
            [
                "repair",
                "retract",
                "retractions",
                "redeliver",
                "rebuild",
                "restore",
                "report",
                "receive",
                "resume",
                "restart",
            ],
        ),
        ("tidemark show fl", ["flights"]),
        ("tidemark up flights fl", ["flights"]),
        ("tidemark show flights c", ["current", "corrections", "clock"]),
        ("tidemark show nonesuch c", []),
        ("tidemark lateness flights --view ", ["departures_by_origin"]),
        ("tidemark explain dep", ["departures_by_origin"]),
        ("tidemark explain fl", ["flights"]),
        ("tidemark why ", ["departures_by_origin", "on_time_performance"]),
        ("tidemark report on", ["on_time_performance"]),
        ("tidemark show flights --js", ["--json"]),
    ],
)
def test_commands_names_and_options_are_proposed(
    words: str, names: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = SparkSession.getActiveSession()
    assert proposed(words, monkeypatch, capsys) == names
    assert SparkSession.getActiveSession() is before


def test_declarations_that_are_broken_propose_nothing_and_say_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_modules(tmp_path / "shop", {"__init__": "1 / 0"})
    monkeypatch.setenv("TIDEMARK_PIPELINES", "shop,nowhere")
    with importable(tmp_path):
        assert proposed("tidemark show ", monkeypatch, capsys) == []


def test_commands_are_proposed_without_java_and_without_importing_any(tmp_path: Path) -> None:
    script = "from platform_assets.cli import main; import sys; sys.argv = ['tidemark']; main()"
    environment = {"_TIDEMARK_COMPLETE": "complete_bash", "COMP_WORDS": "tidemark ", "COMP_CWORD": "1"}
    asked = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", script],
        env={**environment, "PYTHONPATH": str(PROJECT), "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert sorted(asked.stdout.split()) == sorted(COMMANDS)
    assert "pyspark" not in asked.stderr
