"""Finds the declared pipelines: every module with a `pipeline`, in the packages that `TIDEMARK_PIPELINES` names."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType

from streaming.base import BrokenModule, DeclarationError, import_or_explain
from streaming.declare.pipeline import Pipeline
from streaming.lake import Settings


@dataclass(frozen=True)
class _Found:
    pipelines: dict[str, Pipeline]
    broken: tuple[BrokenModule, ...]


def declared_pipelines() -> dict[str, Pipeline]:
    """The pipelines that can be run, by name; those that cannot are in `broken_modules`.

    Raises:
        DeclarationError: `TIDEMARK_PIPELINES` names a package that there is not.
    """
    return _found().pipelines


def broken_modules() -> tuple[BrokenModule, ...]:
    """The modules that declare no pipeline because they cannot be imported, or that contradict one another.

    Raises:
        DeclarationError: `TIDEMARK_PIPELINES` names a package that there is not.
    """
    return _found().broken


def find_pipeline(name: str) -> Pipeline:
    """The pipeline of that name.

    Raises:
        DeclarationError: there is none; the text lists those there are, and the modules that are broken.
    """
    found = _found()
    if name not in found.pipelines:
        broken = "".join(f" {module}." for module in found.broken)
        raise DeclarationError(
            f"there is no pipeline {name!r}; declared are: {', '.join(sorted(found.pipelines)) or 'none'}. A pipeline "
            f"is a module with a variable `pipeline` in {' or '.join(_packages()).replace('.', '/')}.{broken}"
        )
    return found.pipelines[name]


def _found() -> _Found:
    declared: dict[str, Pipeline] = {}
    broken: list[BrokenModule] = []
    for name in _module_names():
        module = import_or_explain(name)
        if isinstance(module, BrokenModule):
            broken.append(module)
        elif isinstance(pipeline := getattr(module, "pipeline", None), Pipeline):
            declared[name] = pipeline
    clashes = {name: _clash(name, declared) for name in declared}
    broken += [BrokenModule(name, clash) for name, clash in clashes.items() if clash is not None]
    return _Found(
        {pipeline.name: pipeline for name, pipeline in declared.items() if clashes[name] is None}, tuple(broken)
    )


def _clash(name: str, declared: dict[str, Pipeline]) -> str | None:
    """Why the pipeline of the module `name` cannot run beside those of other modules."""
    pipeline = declared[name]
    for other, rival in declared.items():
        if other == name:
            continue
        if rival.name == pipeline.name:
            return f"it declares pipeline {pipeline.name!r}, as {other} does; rename one"
        for stream in pipeline.streams:
            if stream.name in {entry.name for entry in rival.streams}:
                return (
                    f"its pipeline {pipeline.name!r} ingests stream {stream.name!r}, as {rival.name!r} of {other} does;"
                    " a stream belongs to one pipeline, so move what reads it into one of them"
                )
    return None


def _module_names() -> Iterator[str]:
    for package in _packages():
        for module in pkgutil.iter_modules(_package(package).__path__):
            yield f"{package}.{module.name}"


def _packages() -> list[str]:
    return [name.strip() for name in Settings().pipelines.split(",") if name.strip()]


def _package(name: str) -> ModuleType:
    package = import_or_explain(name)
    if isinstance(package, BrokenModule):
        raise DeclarationError(
            f"TIDEMARK_PIPELINES names {name!r}, which cannot be imported ({package.reason}); name a package that "
            "Python finds."
        )
    return package
