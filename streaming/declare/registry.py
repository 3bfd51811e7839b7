"""Finds the declared pipelines: every module with a `pipeline`, in the packages that `TIDEMARK_PIPELINES` names."""

from __future__ import annotations

from streaming.base import BrokenModule, DeclarationError, Discovery, discover
from streaming.declare.packages import modules, packages
from streaming.declare.pipeline import Pipeline


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


def _streams(pipeline: Pipeline) -> set[str]:
    return {stream.name for stream in pipeline.streams}


def _discovery() -> Discovery[Pipeline]:
    return discover(modules("pipelines"), "pipeline", Pipeline, _conflict)


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
