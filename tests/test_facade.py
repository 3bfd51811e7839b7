"""The package that a project imports: every name, and nothing that is slow before it is used."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import tidemark

PROJECT = Path(__file__).parents[1]


def imported(path: str) -> list[str]:
    """The names that a front of the project imports."""
    source = ast.parse((PROJECT / path).read_text())
    return [
        alias.asname or alias.name
        for node in ast.walk(source)
        if isinstance(node, ast.ImportFrom) and node.module not in ("typing", "streaming.base.fronts")
        for alias in node.names
    ]


def test_every_name_is_there_and_listed_once() -> None:
    listed = imported("tidemark/__init__.pyi")
    assert [name for name, count in Counter(listed).items() if count > 1 or getattr(tidemark, name, None) is None] == []
    assert dir(tidemark) == sorted(listed)


def test_what_a_declaration_needs_is_all_there() -> None:
    in_the_repository_only = {"annotations", "broken_modules", "declared_pipelines", "find_pipeline"}
    assert {*imported("streaming/__init__.py")} - {*dir(tidemark)} - in_the_repository_only == set()


def test_an_unknown_name_is_told_with_those_there_are() -> None:
    with pytest.raises(AttributeError, match=r"has no name 'Strem'; it has: Aggregate, .*Stream"):
        getattr(tidemark, "Stre" + "m")


def test_importing_it_loads_neither_spark_nor_dagster() -> None:
    loaded = "import sys, tidemark; sys.exit(bool({'pyspark', 'dagster', 'streaming'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", loaded], cwd=PROJECT, check=False).returncode == 0
