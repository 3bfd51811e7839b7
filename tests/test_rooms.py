"""The laws of the rooms: imports go one way, and a package's ``__init__.py`` only re-exports."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from itertools import chain
from pathlib import Path

import pytest

from streaming import declare
from streaming.base.kinds import _IMPLEMENTED

PROJECT = Path(__file__).resolve().parent.parent
FORBIDDEN = {
    "streaming": {"tidemark", "quality", "platform_assets", "dagster", "dagster_pyspark", "great_expectations"},
    "quality": {"tidemark", "platform_assets", "dagster", "dagster_pyspark"},
    "platform_assets": {"tidemark"},
    "platform_assets/texts": {"dagster", "dagster_pyspark"},
}
STREAMING = (
    "base",
    "lake",
    "tables",
    "spark",
    "kafka",
    "clocks",
    "windows",
    "formats",
    "sources",
    "sinks",
    "sql",
    "contracts",
    "declare",
    "log",
    "operators",
    "views",
    "keyed",
    "revisions",
    "selected",
    "joins",
    "lookups",
    "changes",
    "sqlviews",
    "deliveries",
    "queryable",
    "audit",
    "lateness",
    "service",
    "operations",
    "reading",
    "provenance",
    "catalogs",
    "",
)
"""From the bottom to the top: a room imports from those before it; "" is the package's own front."""

PLATFORM = ("", "texts", "events", "reports", "pipeline", "demo", "scaffold", "cli")
"""The same of the platform room; "" are the modules that lie in none of its rooms, but for `definitions`."""

MOST_LINES = 800
"""Of a module of the platform; one that grows beyond has two subjects."""

MODULES = sorted(
    path for room in ("streaming", "quality", "platform_assets") for path in PROJECT.glob(f"{room}/**/*.py")
)


@cache
def nodes(source: str) -> tuple[ast.AST, ...]:
    """Every node of a module; most laws look at all of them."""
    return tuple(ast.walk(ast.parse(source)))


@pytest.fixture(scope="module", autouse=True)
def _forgotten() -> Iterator[None]:
    """Half a million nodes are no burden to the tests that come after these."""
    yield
    nodes.cache_clear()


@cache
def imported(source: str) -> tuple[str, ...]:
    """The name of every module that the source imports anywhere, inside functions too."""
    return tuple(_imported(source))


def _imported(source: str) -> Iterator[str]:
    for node in nodes(source):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            name = f"{'.' * node.level}{node.module or ''}"
            # `from streaming import log` names a room.
            names = [f"{name}.{alias.name}" for alias in node.names]
            rooms = [entry for entry in names if PROJECT.joinpath(*entry.split(".")).is_dir()]
            yield from rooms
            if len(rooms) < len(names):
                yield name


def forbidden_imports(folder: str, source: str) -> set[str]:
    return {name for name in imported(source) if name.split(".")[0] in FORBIDDEN[folder]}


def room_of(module: str, top: str) -> str | None:
    """The room of a module below the package `top`; None where it is not in it, "" where it is in none of its rooms."""
    parts = module.split(".")
    if parts[0] != top:
        return None
    below = PROJECT.joinpath(*parts[:2])
    return parts[1] if len(parts) > 1 and below.is_dir() else ""


def upward_imports(module: str, source: str, top: str, order: tuple[str, ...]) -> set[str]:
    """What a module imports from rooms that come after its own in `order`."""
    own = room_of(module, top)
    assert own is not None and own in order, f"{module} is in a room that the order does not name: {own!r}"
    rooms = {name: room_of(name, top) for name in imported(source)}
    return {name for name, room in rooms.items() if room is not None and order.index(room) > order.index(own)}


def around_the_front(module: str, source: str) -> set[str]:
    """Modules of another room that are imported past its ``__init__.py``."""
    own, makes_fronts = room_of(module, "streaming"), "streaming.base.fronts"
    others = (name for name in imported(source) if name.count(".") > 1 and name != makes_fronts)
    return {name for name in others if room_of(name, "streaming") not in (None, own)}


def circle(imports: Mapping[str, set[str]]) -> list[str]:
    """Modules that import one another, one after the other; nothing where there is no circle."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


KIND_ROOMS = {
    "Windowed": {"views"},
    "OverWindows": {"views", "joins"},
    "TwoSided": {"joins"},
    "WindowJoined": {"joins"},
    "CoGrouped": {"joins"},
    "Joined": {"joins"},
    "Keyed": {"keyed"},
    "Selected": {"selected"},
    "Enriched": {"lookups"},
    "History": {"revisions"},
    "View": {"sqlviews"},
    "Table": {"sources"},
}
"""The rooms that may ask whether something is of a kind, besides `declare`, where the kinds are."""


def kinds_asked(source: str) -> set[str]:
    """The kinds of operators and sources by which a module tells values apart."""
    asked: list[ast.expr] = []
    for node in nodes(source):
        match node:
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, kinds]):
                asked.append(kinds)
            case ast.MatchClass(cls=kind):
                asked.append(kind)
    names = (name for kinds in asked for name in ast.walk(kinds))
    return {name.id for name in names if isinstance(name, ast.Name)} & set(KIND_ROOMS)


def only_re_exports(source: str) -> bool:
    def allowed(node: ast.stmt) -> bool:
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant(value=str())):
                return True
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), body=body, orelse=[]):
                return all(isinstance(each, ast.ImportFrom) for each in body)
            case ast.Expr(value=ast.Call(func=ast.Name(id="make_front"))):
                return True
        return False

    return all(allowed(node) for node in ast.parse(source).body)


def relative(path: Path) -> str:
    return path.relative_to(PROJECT).as_posix()


def dotted(path: Path) -> str:
    return relative(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@pytest.mark.parametrize("folder", FORBIDDEN)
def test_imports_go_one_way(folder: str) -> None:
    modules = [path for path in MODULES if relative(path).startswith(f"{folder}/")]
    assert modules
    wrong = {relative(path): forbidden_imports(folder, path.read_text()) for path in modules}
    assert {path: names for path, names in wrong.items() if names} == {}


@pytest.mark.parametrize(("top", "order"), [("streaming", STREAMING), ("platform_assets", PLATFORM)])
def test_rooms_import_from_the_rooms_below_them(top: str, order: tuple[str, ...]) -> None:
    above = {"platform_assets.definitions"}
    modules = {dotted(path): path for path in MODULES if dotted(path).split(".")[0] == top}
    wrong = {
        name: upward_imports(name, path.read_text(), top, order) for name, path in modules.items() if name not in above
    }
    assert {name: names for name, names in wrong.items() if names} == {}


def test_a_room_is_entered_through_its_front() -> None:
    wrong = {relative(path): around_the_front(dotted(path), path.read_text()) for path in MODULES}
    assert {path: names for path, names in wrong.items() if names} == {}


def test_no_modules_import_one_another_in_a_circle() -> None:
    names = {dotted(path) for path in MODULES}
    # What a package re-exports is behind it, not before it: modules of a room name each other.
    modules = {dotted(path): path for path in MODULES if path.name != "__init__.py"}
    assert circle({name: {*imported(path.read_text())} & names for name, path in modules.items()}) == []


def test_modules_are_short_enough_to_be_read_at_once() -> None:
    lines = {relative(path): len(path.read_text().splitlines()) for path in MODULES}
    assert {path: number for path, number in lines.items() if number > MOST_LINES} == {}


def docstrings(source: str) -> Iterator[str]:
    """Those of modules, classes and functions, and the texts below assignments."""
    for node in nodes(source):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        for place, statement in enumerate(body):
            documents = (
                isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
                if place == 0
                else isinstance(body[place - 1], ast.Assign | ast.AnnAssign)
            )
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))) if documents:
                    yield text.strip()


def test_a_docstring_begins_with_its_subject() -> None:
    needs_its_neighbour = re.compile(r"(What|Whether|How|The same|Of)\b")
    others = (path for room in ("tidemark", "benchmarks", "deploy", "docs") for path in PROJECT.glob(f"{room}/**/*.py"))
    wrong = {
        relative(path): [text for text in docstrings(path.read_text()) if needs_its_neighbour.match(text)]
        for path in (*MODULES, *others)
    }
    assert {path: texts for path, texts in wrong.items() if texts} == {}


def test_modules_and_classes_are_named_by_nouns_of_the_field() -> None:
    participle = re.compile(r"(^|_)(held|kept|seen|heard|left|found|given|told|standing|followed(?!_by))(_|$)")
    for path in MODULES:
        classes = (node.name for node in nodes(path.read_text()) if isinstance(node, ast.ClassDef))
        names = [path.stem, *(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower() for name in classes)]
        assert [name for name in names if participle.search(name)] == [], path


def test_imports_name_their_room() -> None:
    relatives = {
        relative(path): [name for name in imported(path.read_text()) if name.startswith(".")] for path in MODULES
    }
    assert {path: names for path, names in relatives.items() if names} == {}


def test_a_packages_init_only_re_exports() -> None:
    fronts = [path for path in MODULES if path.name == "__init__.py"]
    assert [relative(path) for path in fronts if not only_re_exports(path.read_text())] == []


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


@pytest.mark.parametrize("source", ["from streaming.views import plan", "def f():\n    import streaming.log.ingest"])
def test_the_order_of_rooms_sees_an_upward_import(source: str) -> None:
    assert upward_imports("streaming.tables.delta", source, "streaming", STREAMING)


def test_the_front_of_a_room_sees_who_goes_around_it() -> None:
    assert around_the_front("streaming.views.results", "from streaming.log.read import valid") == {"streaming.log.read"}
    assert not around_the_front("streaming.views.results", "from streaming.views.results import pairs")


def test_the_law_of_circles_sees_one() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"a"}})


def test_every_name_of_a_front_is_there() -> None:
    paths = (path for path in MODULES if path.name == "__init__.py" and "make_front" in path.read_text())
    fronts = [import_module(dotted(path)) for path in paths]
    assert fronts and [name for front in fronts for name in dir(front) if not hasattr(front, name)] == []


def test_a_front_gives_the_function_and_not_the_module_of_its_name() -> None:
    drain = import_module("streaming.service.drain")
    assert import_module("streaming.service").drain is drain.drain


def test_the_modules_that_implement_a_kind_are_there() -> None:
    assert [kind for kind in _IMPLEMENTED if not hasattr(declare, kind)] == []
    assert all(map(import_module, chain(*_IMPLEMENTED.values())))


def test_what_runs_an_operator_is_found_where_nothing_but_its_declaration_was_imported() -> None:
    code = (
        "from docs.examples import temperature_jumps as jumps; from streaming.lake import Lake;"
        "from streaming.operators import runtime_of;"
        "print(type(runtime_of(jumps.pipeline.operator(), Lake('x'))).__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "KeyedRuntime"


def test_declarations_load_neither_spark_nor_what_only_runs_need() -> None:
    heavy = {"pyspark", "pandas", "dagster", "great_expectations", "httpx", "duckdb", "prometheus_client"}
    code = f"import sys, platform_assets.demo.pipelines.flights; print(*sorted({heavy!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("source", ["LIMIT = 3", "from a import b\nb()", "def f(): ...", "if True:\n    import a"])
def test_the_init_law_sees_code(source: str) -> None:
    assert not only_re_exports(source)


def test_outside_its_room_a_kind_is_asked_by_contract() -> None:
    found = {}
    for path in MODULES:
        room = room_of(".".join(path.relative_to(PROJECT).with_suffix("").parts), "streaming")
        outside = {kind for kind in kinds_asked(path.read_text()) if room not in KIND_ROOMS[kind] | {"declare"}}
        if outside:
            found[str(path.relative_to(PROJECT))] = sorted(outside)
    assert found == {}, "isinstance of a kind outside its room is a method that the contract lacks"


@pytest.mark.parametrize(
    "source",
    [
        "isinstance(operator, Windowed)",
        "isinstance(operator, (Stream, Windowed))",
        "isinstance(operator, Stream | Windowed)",
        "match operator:\n    case Windowed():\n        pass",
    ],
)
def test_a_question_for_a_kind_is_found(source: str) -> None:
    assert kinds_asked(source) == {"Windowed"}
