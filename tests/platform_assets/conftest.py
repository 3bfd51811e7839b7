"""A platform on a lake of its own: the very definitions of the code location, with another home."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator

import dagster as dg
import pytest

from platform_assets.cli import main
from platform_assets.cli.context import console
from platform_assets.demo.pipelines.flights import pipeline
from platform_assets.pipeline.builder import pipeline_definitions
from platform_assets.reports.registry import find_report
from platform_assets.resources import default_resources
from streaming.lake.lake import Lake

Tidemark = Callable[[str], tuple[int, str]]
Typed = Callable[[str], tuple[int, str, str]]


@pytest.fixture
def typed(lake: Lake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    """Types a command; gives exit code, stdout and stderr."""
    monkeypatch.setenv("TIDEMARK_HOME", lake.root)

    def type_(command: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["tidemark", *shlex.split(command)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main()
        captured = capsys.readouterr()
        code = left.value.code
        return code if isinstance(code, int) else 0, captured.out, captured.err

    return type_


@pytest.fixture
def tidemark(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> Tidemark:
    """Types a command; gives exit code and all that was printed, on one line."""
    monkeypatch.setattr(console, "width", 400)  # wide enough that nothing is folded

    def on_one_line(command: str) -> tuple[int, str]:
        code, out, err = typed(command)
        return code, " ".join((out + err).split())

    return on_one_line


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """An instance that leaves nothing behind."""
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


@pytest.fixture
def platform(lake: Lake) -> dg.Definitions:
    """Flights and their report on the test's lake."""
    return dg.Definitions.merge(
        pipeline_definitions(pipeline, [find_report("on_time_performance")]),
        dg.Definitions(resources=default_resources(lake.root), executor=dg.in_process_executor),
    )
