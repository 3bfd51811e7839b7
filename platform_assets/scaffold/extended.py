"""A view or delivery added to the module of a pipeline: its source is changed in three places, the rest stays."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from platform_assets.scaffold.pieces import filled
from streaming.base import DeclarationError, check_name

To = Literal["files", "kafka", "postgres", "delta", "objects", "http"]
"""The targets to begin with."""

_OF_A_VIEW = ("Tumbling", "Windowed", "agg")
_TARGETS: dict[To, tuple[str, str]] = {
    "files": ("JsonLines", 'JsonLines("exports/{name}")'),
    "kafka": ("KafkaTopic", 'KafkaTopic("localhost:9092", "{name}")'),
    "postgres": ("Postgres", 'Postgres("{name}", connection="service=shop")'),
    "delta": ("DeltaTable", 'DeltaTable("exports/{name}")'),
    "objects": ("Objects", 'Objects("s3://bucket/{name}")'),
    "http": ("Rest", 'Rest("https://api.example/{name}")'),
}
"""The name to import for each, and what it is declared as."""
_GIVEN_AS = {"view": "views", "delivery": "deliveries"}
_LONGEST_LINE = 100


def add_view(file: Path, name: str) -> Path:
    """Declare the view `name` before the variable `pipeline` of a module, and give it to the pipeline; returns `file`.

    Raises:
        DeclarationError: the name is not allowed or used already, or the module does not declare its pipeline as
            `pipeline = Pipeline(stream=..., views=(...))`; the file is as it was.
    """
    return _add(file, "view", name, _OF_A_VIEW)


def add_delivery(file: Path, name: str, to: To = "files") -> Path:
    """Declare the delivery `name`, of the stream's rows to such a target, in the same way; returns `file`.

    Raises:
        DeclarationError: as `add_view`.
    """
    target, declared = _TARGETS[to]
    return _add(file, "delivery", name, ("Delivery", target), to=declared.format(name=name))


def _add(file: Path, kind: Literal["view", "delivery"], name: str, needs: tuple[str, ...], **values: str) -> Path:
    check_name(kind, name)
    source = file.read_text(encoding="utf-8")
    tree = ast.parse(source)
    bound = _bound(tree)
    if name in bound:
        raise DeclarationError(f"{str(file)!r} has a {name!r} already", "choose another name.", value=str(file))
    assignment, call = _pipeline_of(tree)
    given = {} if call is None else {keyword.arg: keyword.value for keyword in call.keywords}
    stream, views, held = given.get("stream"), given.get("views"), given.get(_GIVEN_AS[kind])
    can_be_added_to = (views is None or isinstance(views, ast.Tuple)) and (held is None or isinstance(held, ast.Tuple))
    if assignment is None or call is None or stream is None or not can_be_added_to:
        own = filled(kind, name=name, stream="...", **values)
        raise DeclarationError(
            f"{str(file)!r} does not declare its pipeline as `pipeline = Pipeline(stream=..., views=(...))`, so nobody "
            f"can say where a {kind} goes.",
            f"Write it there yourself:\n\n{own}",
            value=str(file),
        )
    declared = filled(kind, name=name, stream=ast.unparse(stream), **values)
    text = _Text(source)
    added = _with_element(text, held, name) if isinstance(held, ast.Tuple) else _with_keyword(text, call, kind, name)
    edits = [added, _Edit(text.start(assignment), text.start(assignment), f"{declared}\n")]
    edits += _with_import(text, tree, [needed for needed in needs if needed not in bound])
    file.write_text(_edited(source, edits), encoding="utf-8")
    return file


@dataclass(frozen=True)
class _Edit:
    """The characters from `start` to `end` become `text`."""

    start: int
    end: int
    text: str


class _Text:
    """Where the nodes of a source begin and end, in characters."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._lines = source.splitlines(keepends=True)

    def start(self, node: ast.stmt | ast.expr) -> int:
        return self._position(node.lineno, node.col_offset)

    def end(self, node: ast.stmt | ast.expr) -> int:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self._position(node.end_lineno, node.end_col_offset)

    def _position(self, line: int, column: int) -> int:
        # Python counts the column in bytes.
        before = self._lines[line - 1].encode()[:column].decode()
        return sum(map(len, self._lines[: line - 1])) + len(before)


def _edited(source: str, edits: list[_Edit]) -> str:
    for edit in sorted(edits, key=lambda edit: edit.start, reverse=True):
        source = source[: edit.start] + edit.text + source[edit.end :]
    return source


def _bound(tree: ast.Module) -> set[str]:
    """The names that the module's own statements give."""
    names = {
        alias.asname or alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    targets = (target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets)
    return names | {target.id for target in targets if isinstance(target, ast.Name)}


def _pipeline_of(tree: ast.Module) -> tuple[ast.Assign | None, ast.Call | None]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["pipeline"]:
            return node, node.value if isinstance(node.value, ast.Call) else None
    return None, None


def _with_keyword(text: _Text, call: ast.Call, kind: str, name: str) -> _Edit:
    place = text.end(call.keywords[-1].value)
    return _Edit(place, place, f", {_GIVEN_AS[kind]}=({name},)")


def _with_element(text: _Text, views: ast.Tuple, name: str) -> _Edit:
    start, end = text.start(views), text.end(views)
    if not views.elts:
        return _Edit(start, end, f"({name},)")
    last = text.end(views.elts[-1])
    rest = text.source[last : end - 1]
    if "\n" not in text.source[start:end]:
        return _Edit(last, end - 1, f", {name}")
    element = views.elts[-1]
    # The comma may be missing behind the last, and a comment may stand there.
    comma = "" if rest.lstrip().startswith(",") else ","
    place = text.source.index("\n", last)
    return _Edit(place, place, f"{comma}\n{' ' * element.col_offset}{name},")


def _with_import(text: _Text, tree: ast.Module, names: list[str]) -> list[_Edit]:
    """The import of the facade with `names`, or one of its own behind the last."""
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    if not names:
        return []
    for node in imports:
        segment = text.source[text.start(node) : text.end(node)]
        if isinstance(node, ast.ImportFrom) and node.module == "tidemark" and "#" not in segment:
            every = sorted({*names, *(ast.unparse(alias) for alias in node.names)}, key=_order)
            return [_Edit(text.start(node), text.end(node), _import_of(every))]
    place = text.end(imports[-1]) if imports else text.start(tree.body[0])
    return [_Edit(place, place, f"\n{_import_of(names)}" if imports else f"{_import_of(names)}\n\n")]


def _order(name: str) -> tuple[bool, str]:
    """Classes before functions, as import sorters do it."""
    return name[0].islower(), name


def _import_of(names: list[str]) -> str:
    line = f"from tidemark import {', '.join(names)}"
    if len(line) <= _LONGEST_LINE:
        return line
    return "\n".join(["from tidemark import (", *(f"    {name}," for name in names), ")"])
