"""Help is there at once: it needs neither Java nor what commands need, and they need no more than what they do."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from platform_assets.cli.app import COMMANDS, Commands
from streaming.base import RELEASE
from streaming.lake import Lake
from tests.support.written_lake import write_flights

PROJECT = Path(__file__).parents[3]
ASKS_FOR_HELP = """
import sys
sys.argv = ["tidemark", {arguments}]
from platform_assets.cli import main
try:
    main()
finally:
    print("needed:", sorted({{"pyspark", "dagster", "streaming"}} & set(sys.modules)))
"""
READS = """
import gc, sys
from platform_assets.cli import main
try:
    main()
finally:
    print("needed:", sorted({slow!r} & set(sys.modules)), gc.isenabled(), gc.get_freeze_count() > 0)
"""
SLOW = {
    "pyspark", "dagster", "great_expectations", "pandas", "matplotlib", "httpx", "prometheus_client",
    "pyarrow.compute", "pyarrow.dataset", "hypothesis",
}  # fmt: skip


@pytest.mark.parametrize("arguments", ["'--help'", ""])
def test_help_names_every_command_without_java_and_imports_none_of_them(arguments: str, tmp_path: Path) -> None:
    asked = subprocess.run(
        [sys.executable, "-c", ASKS_FOR_HELP.format(arguments=arguments)],
        env={"PYTHONPATH": str(PROJECT), "PATH": str(tmp_path), "COLUMNS": "200"},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    assert "needed: []" in asked.stdout
    for command in COMMANDS:
        assert f" {command} " in asked.stdout


def test_versions_are_printed_without_java_and_without_importing_what_they_are_of(tmp_path: Path) -> None:
    jdk = tmp_path / "jdk"
    (jdk / "bin").mkdir(parents=True)
    (jdk / "release").write_text('IMPLEMENTOR="nobody"\nJAVA_VERSION="21.0.9"\nJAVA_VERSION_DATE="2025-10-21"\n')
    for environment, java in (({}, "not found"), ({"JAVA_HOME": str(jdk)}, f"21.0.9 ({jdk}/bin/java)")):
        asked = subprocess.run(
            [sys.executable, "-c", ASKS_FOR_HELP.format(arguments="'--version'")],
            env={"PYTHONPATH": str(PROJECT), "PATH": str(tmp_path), **environment},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        lines = asked.stdout.splitlines()
        assert lines[0] == f"tidemark {RELEASE}" and lines[-2:] == [f"Java {java}", "needed: []"]
        assert {f"Spark {version('pyspark')}", f"Delta {version('delta-spark')}"} <= {*lines}
        assert asked.returncode == 0


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_there_and_says_the_same_in_the_list_and_by_itself(name: str) -> None:
    group = Commands(name="tidemark")
    listed = group.get_command(None, name)
    command_name, command, rest = group.resolve_command(None, [name, "--x"])
    assert listed is not None and listed.help and (command_name, rest) == (name, ["--x"])
    assert command.help.startswith(listed.help)


def test_only_commands_that_draw_or_show_dagster_import_what_that_takes() -> None:
    imports = (
        "import sys; from importlib import import_module\n"
        "for name in sys.argv[1:]: import_module(f'platform_assets.cli.{name}')\n"
        "sys.exit(', '.join({'dagster', 'great_expectations', 'matplotlib'} & set(sys.modules)))"
    )
    others = sorted({*COMMANDS.values()} - {"lateness", "demonstration"})
    done = subprocess.run(
        [sys.executable, "-c", imports, *others], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert done.stderr.strip() == ""


@pytest.mark.parametrize("command", ["show flights current --limit 3", "status"])
def test_a_command_that_only_reads_imports_nothing_that_is_slow_and_looks_for_no_garbage_meanwhile(
    command: str, tmp_path: Path
) -> None:
    environment = {"PYTHONPATH": str(PROJECT), "TIDEMARK_HOME": write_flights(Lake(str(tmp_path))).root}
    done = subprocess.run(
        [sys.executable, "-c", READS.format(slow=SLOW), *command.split()],
        env=environment,
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "flights" in done.stdout and done.stdout.splitlines()[-1] == "needed: [] True True"
