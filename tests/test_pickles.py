"""Who can write to a lake makes no process run code: nothing that is read from there is unpickled or evaluated."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("streaming", "quality", "platform_assets", "tidemark")

LOADS = {
    # From the pipe of a process that this one started to call a function of the user's.
    "streaming/lookups/calls.py": {"pickle.loads"},
    # From an option of Spark's reader, which the driver set a moment before; it is in no checkpoint.
    "streaming/sources/offsets.py": {"pickle.loads"},
}
"""Where something is unpickled, and what it is."""

MODULES = {"pickle", "cloudpickle", "_pickle", "marshal", "shelve", "dill", "joblib", "jsonpickle"}
FORBIDDEN = {"eval", "exec", "compile"}


def dangerous(source: str) -> set[str]:
    """What a module calls, or hands on, that makes code of data."""
    tree, calls = ast.parse(source), set[str]()
    aliases = {
        name.asname or name.name: name.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for name in node.names
    }
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=names) if module.split(".")[0] in MODULES:
                calls |= {f"{module}.{name.name}" for name in names}
            case ast.Attribute(value=ast.Name(id=module), attr=attribute):
                name = aliases.get(module, module)
                if (
                    name.split(".")[0] in MODULES
                    or (name, attribute) in {("yaml", "load"), ("yaml", "unsafe_load")}
                    or attribute == "read_pickle"
                ):
                    calls.add(f"{name}.{attribute}")
            case ast.Call(func=ast.Name(id=name)) if name in FORBIDDEN:
                calls.add(name)
            case ast.keyword(arg="allow_pickle", value=value) if not (
                isinstance(value, ast.Constant) and value.value is False
            ):
                calls.add("allow_pickle")
    return {name for name in calls if not name.endswith((".dumps", ".dump"))}


def test_nothing_is_unpickled_or_evaluated_but_what_processes_of_one_user_say_to_one_another() -> None:
    modules = {
        path.relative_to(ROOT).as_posix(): calls
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
        if (calls := dangerous(path.read_text(encoding="utf-8")))
    }
    assert modules == LOADS


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import pickle as p\np.load(f)", "pickle.load"),
        ("from cloudpickle import loads", "cloudpickle.loads"),
        ("import pickle\nlist(map(pickle.loads, rows))", "pickle.loads"),
        ("import pandas as pd\npd.read_pickle('x')", "pandas.read_pickle"),
        ("import numpy as np\nnp.load(f, allow_pickle=True)", "allow_pickle"),
        ("import yaml\nyaml.load(f)", "yaml.load"),
        ("eval(text)", "eval"),
    ],
)
def test_the_search_finds_what_makes_code_of_data(source: str, name: str) -> None:
    assert name in dangerous(source)
