"""The laws of the rooms: imports go one way, and a package's ``__init__.py`` only re-exports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent
FORBIDDEN = {
    "streaming": {"quality", "platform_assets", "dagster", "dagster_pyspark", "great_expectations"},
    "quality": {"platform_assets", "dagster", "dagster_pyspark"},
    "platform_assets/reports": {"dagster", "dagster_pyspark"},
}
MODULES = sorted(
    path for room in ("streaming", "quality", "platform_assets") for path in PROJECT.glob(f"{room}/**/*.py")
)


def imported(source: str) -> Iterator[str]:
    """The name of every module that the source imports anywhere, inside functions too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield f"{'.' * node.level}{node.module or ''}"


def forbidden_imports(folder: str, source: str) -> set[str]:
    return {name for name in imported(source) if name.split(".")[0] in FORBIDDEN[folder]}


def only_re_exports(source: str) -> bool:
    def allowed(node: ast.stmt) -> bool:
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant(value=str())):
                return True
            case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List() | ast.Tuple()):
                return True
        return False

    return all(allowed(node) for node in ast.parse(source).body)


def relative(path: Path) -> str:
    return path.relative_to(PROJECT).as_posix()


@pytest.mark.parametrize("folder", FORBIDDEN)
def test_imports_go_one_way(folder: str) -> None:
    modules = [path for path in MODULES if relative(path).startswith(f"{folder}/")]
    assert modules
    wrong = {relative(path): forbidden_imports(folder, path.read_text()) for path in modules}
    assert {path: names for path, names in wrong.items() if names} == {}


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_imports_name_their_room(path: Path) -> None:
    assert [name for name in imported(path.read_text()) if name.startswith(".")] == []


@pytest.mark.parametrize("path", [path for path in MODULES if path.name == "__init__.py"], ids=relative)
def test_a_packages_init_only_re_exports(path: Path) -> None:
    assert only_re_exports(path.read_text())


@pytest.mark.parametrize(
    "source",
    [
        "import dagster as dg",
        "from great_expectations.core import X",
        "def f():\n    from quality import gate",
    ],
)
def test_the_import_law_sees_every_way_to_import(source: str) -> None:
    assert forbidden_imports("streaming", source)


@pytest.mark.parametrize("source", ["LIMIT = 3", "from a import b\nb()", "def f(): ...", "if True:\n    import a"])
def test_the_init_law_sees_code(source: str) -> None:
    assert not only_re_exports(source)
