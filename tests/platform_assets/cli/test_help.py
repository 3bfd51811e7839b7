"""Help is there at once: it needs neither Java nor what commands need, and they need no more than what they do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from platform_assets.cli.app import COMMANDS, Commands

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
