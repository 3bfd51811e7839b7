"""Notebooks of the pages run from top to bottom, on a lake that needs no Spark."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from streaming.lake import Lake
from tests.support.written_lake import write_flights

NOTEBOOKS = Path(__file__).parents[1] / "docs" / "notebooks"


def cells(notebook: Path) -> list[str]:
    """The code of a notebook, which is kept without outputs."""
    code = [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]
    assert code and all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    return ["".join(cell["source"]) for cell in code]


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """Run a cell; its last expression is what a notebook would show."""
    tree = ast.parse(source)
    last = ast.Expression(tree.body.pop().value) if isinstance(tree.body[-1], ast.Expr) else None  # type: ignore[attr-defined]
    exec(compile(tree, "cell", "exec"), names)
    return None if last is None else eval(compile(last, "cell", "eval"), names)


def test_each_notebook_is_run_by_a_test() -> None:
    """That of an analyst by `test_corrected_revenue_is_one_number_whoever_reads_it`."""
    assert {notebook.stem for notebook in NOTEBOOKS.glob("*.ipynb") if cells(notebook)} == {"reading", "analyst"}


def test_a_notebook_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_HOME", write_flights(Lake(str(tmp_path))).root)
    names: dict[str, Any] = {}
    shown = [run_cell(source, names) for source in cells(NOTEBOOKS / "reading.ipynb")]
    assert "<td>LGA</td>" in shown[0]._repr_html_()
    assert shown[2:] == [[("EWR", 2), ("JFK", 3), ("LGA", 7)], 3]
