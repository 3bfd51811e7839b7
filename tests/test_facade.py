"""The package that a project imports: every name, and nothing that is slow before it is used."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import streaming
import tidemark

PROJECT = Path(__file__).parents[1]


def test_every_name_is_there_and_typed_once() -> None:
    source = ast.parse((PROJECT / "tidemark/__init__.py").read_text())
    typed = Counter(alias.name for node in ast.walk(source) if isinstance(node, ast.ImportFrom) for alias in node.names)
    assert [name for name in tidemark.__all__ if getattr(tidemark, name, None) is None or typed[name] != 1] == []


def test_what_a_declaration_needs_is_all_there() -> None:
    in_the_repository_only = {"broken_modules", "declared_pipelines", "find_pipeline"}
    assert {*streaming.__all__} - {*tidemark.__all__} == in_the_repository_only


def test_an_unknown_name_is_told_with_those_there_are() -> None:
    with pytest.raises(AttributeError, match=r"has no name 'Strem'; it has: Aggregate, .*Stream"):
        _ = tidemark.Strem
    assert dir(tidemark) == tidemark.__all__


def test_importing_it_loads_neither_spark_nor_dagster() -> None:
    loaded = "import sys, tidemark; sys.exit(bool({'pyspark', 'dagster', 'streaming'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", loaded], cwd=PROJECT, check=False).returncode == 0
