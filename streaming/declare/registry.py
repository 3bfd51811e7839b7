"""Finds the declared pipelines: every module with a `pipeline`, in the packages that `TIDEMARK_PIPELINES` names."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

from streaming.base import BrokenModule, DeclarationError, Discovery, discover, import_modules, import_or_explain
from streaming.declare.pipeline import Pipeline
from streaming.lake import Settings


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


def find_pipeline(name: str) -> Pipeline:
    """The pipeline of that name.

    Raises:
        DeclarationError: there is none; the text lists those there are, then the broken modules, one a line.
    """
    place = " or ".join(_packages()).replace(".", "/")
    return _discovery().find(name, "pipeline", place, DeclarationError)


def _discovery() -> Discovery[Pipeline]:
    return discover(_modules(), "pipeline", Pipeline, _conflict)


def _conflict(one: Pipeline, other: Pipeline) -> str | None:
    if one.name == other.name:
        return f"declare pipeline {one.name!r}; rename one"
    names = {stream.name for stream in other.streams}
    shared = [stream.name for stream in one.streams if stream.name in names]
    if shared:
        return (
            f"ingest stream {shared[0]!r}, in pipelines {one.name!r} and {other.name!r}, but a log has one writer; "
            "move what reads the stream into one pipeline"
        )
    return None


def _modules() -> Iterator[ModuleType | BrokenModule]:
    for name in _packages():
        package = import_or_explain(name)
        if isinstance(package, ModuleType) and hasattr(package, "__path__"):
            yield from import_modules(package)
        elif isinstance(package, BrokenModule) and package.file is not None:
            yield package
        else:
            reason = package.reason if isinstance(package, BrokenModule) else "it is a module"
            raise DeclarationError(
                f"TIDEMARK_PIPELINES names {name!r}, which is no package ({reason}); name a package that Python finds."
            )


def _packages() -> list[str]:
    return [name.strip() for name in Settings().pipelines.split(",") if name.strip()]
