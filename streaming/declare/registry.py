"""Finds what a project declares, in the packages that its settings name: the `pipeline` of a module, files of views."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Literal

from streaming.base import BrokenModule, DeclarationError, Discovery, discover, import_modules, import_or_explain
from streaming.declare.operator import Operator
from streaming.declare.pipeline import Pipeline
from streaming.declare.view_files import FOLDER, with_view_files
from streaming.lake import Lake, Settings, find_project, make_importable

_Kind = Literal["pipelines", "suites", "reports"]


def packages(kind: _Kind) -> list[str]:
    """The names of the packages that hold declarations of this kind; Python finds those of the project from now on."""
    make_importable(find_project())
    return [name.strip() for name in str(getattr(Settings(), kind)).split(",") if name.strip()]


def modules(kind: _Kind) -> Iterator[ModuleType | BrokenModule]:
    """Every module in those packages, each importable or with what is wrong with it.

    Raises:
        DeclarationError: a setting names a package that Python does not find.
    """
    for name in packages(kind):
        package = package_of(kind, name)
        if isinstance(package, BrokenModule):
            yield package
        else:
            yield from import_modules(package)


def package_of(kind: _Kind, name: str) -> ModuleType | BrokenModule:
    """The package of that name, which a setting names, or what is wrong with its own code.

    Raises:
        DeclarationError: Python does not find it.
    """
    package = import_or_explain(name)
    if isinstance(package, ModuleType) and hasattr(package, "__path__"):
        return package
    if isinstance(package, BrokenModule) and package.file is not None:
        return package
    reason = package.reason if isinstance(package, BrokenModule) else "it is a module"
    raise DeclarationError(
        f"TIDEMARK_{kind.upper()} names {name!r}, which is no package ({reason})", "name a package that Python finds."
    )


def declared_pipelines() -> dict[str, Pipeline]:
    """The pipelines that can run, by name; `broken_modules` has the others.

    Raises:
        DeclarationError: `TIDEMARK_PIPELINES` names a package that Python does not find.
    """
    return _discovery().by_name


def broken_modules() -> tuple[BrokenModule, ...]:
    """The modules that cannot be imported, and those whose pipelines have one name or ingest one stream.

    Raises:
        DeclarationError: `TIDEMARK_PIPELINES` names a package that Python does not find.
    """
    return _discovery().broken


def written_pipelines() -> dict[str, Pipeline]:
    """The pipelines as their modules have them, by name: without views of files, also where nothing is computed yet.

    Raises:
        DeclarationError: `TIDEMARK_PIPELINES` names a package that Python does not find.
    """
    return _written().by_name


def find_pipeline(name: str) -> Pipeline:
    """The pipeline of that name.

    Raises:
        DeclarationError: there is none; the text lists those there are, then the broken modules, one a line. Where it
            is the name of a stream, the text names the pipeline that ingests it.
    """
    place = " or ".join(packages("pipelines")).replace(".", "/")
    discovery = _discovery()
    owner = next((pipeline.name for pipeline in discovery.declared if name in _streams(pipeline)), name)
    if owner != name and name not in discovery.by_name:
        raise DeclarationError(
            f"{name!r} is a stream, not a pipeline; the pipeline that ingests it is {owner!r}.", value=name
        )
    return discovery.find(name, "pipeline", place, DeclarationError)


def operator_in_lake(
    pipeline: str | Pipeline, operator: str | Operator | None, lake: Lake | None
) -> tuple[Pipeline, Operator, Lake]:
    """The pipeline, operator and lake that are meant; without one the first operator, and the lake of the settings.

    Raises:
        DeclarationError: there is no such pipeline, or no such operator of it.
    """
    of = find_pipeline(pipeline) if isinstance(pipeline, str) else pipeline
    asked = operator if isinstance(operator, Operator) else of.operator(operator)
    return of, asked, Settings().lake if lake is None else lake


def _streams(pipeline: Pipeline) -> set[str]:
    return {stream.name for stream in pipeline.streams}


def _discovery() -> Discovery[Pipeline]:
    return with_view_files(_written(), view_folders())


def _written() -> Discovery[Pipeline]:
    return discover(modules("pipelines"), "pipeline", Pipeline, _conflict)


def view_folders() -> list[Path]:
    """The folders with files of SQL views: `views`, beside each package of pipelines."""
    found = (package_of("pipelines", name) for name in packages("pipelines"))
    folders = (Path(entry).parent / FOLDER for each in found for entry in getattr(each, "__path__", ()))
    return list(dict.fromkeys(folders))


def _conflict(one: Pipeline, other: Pipeline) -> str | None:
    if one.name == other.name:
        return f"declare pipeline {one.name!r}; rename one"
    names = _streams(other)
    shared = [stream.name for stream in one.streams if stream.name in names]
    if shared:
        return (
            f"ingest stream {shared[0]!r}, in pipelines {one.name!r} and {other.name!r}, but a log has one writer; "
            "move what reads the stream into one pipeline"
        )
    return None
