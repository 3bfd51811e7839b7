"""The fixtures that a project's tests get by installing the package, and those that they get by asking for them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]


def fixtures(folder: Path, configuration: str) -> set[str]:
    """The fixtures of ours that pytest offers in a folder with this configuration."""
    (folder / "pytest.ini").write_text(f"[pytest]\n{configuration}\n")
    listed = subprocess.run(
        [sys.executable, "-m", "pytest", "--fixtures", "-p", "no:cacheprovider"],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(PROJECT)},
        text=True,
        stdout=subprocess.PIPE,
        check=False,
    )
    return {*re.findall(r"^(\w+) .*-- .*tidemark/\w+\.py", listed.stdout, re.MULTILINE)}


@pytest.mark.parametrize(
    ("configuration", "short"), [("", set()), ("addopts = -p tidemark.short_fixtures", {"spark", "lake"})]
)
def test_a_project_gets_fixtures_with_short_names_only_where_it_asks_for_them(
    configuration: str, short: set[str], tmp_path: Path
) -> None:
    assert fixtures(tmp_path, configuration) == {"tidemark_spark", "tidemark_lake", *short}
