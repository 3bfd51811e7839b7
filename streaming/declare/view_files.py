"""SQL views as files, each in the pipeline that has what it reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from streaming.base import BrokenModule, DeclarationError, Discovery, StreamingError
from streaming.declare.operator import Operator
from streaming.declare.pipeline import Pipeline
from streaming.declare.sql_view import View
from streaming.declare.stream import Stream

if TYPE_CHECKING:
    from streaming.sql import QueryFile

FOLDER = "views"
"""The folder with the files of views, beside that of the pipelines."""


def with_view_files(discovery: Discovery[Pipeline], folders: Iterable[Path]) -> Discovery[Pipeline]:
    """The declarations with the views of the files in these folders, each in the pipeline that has what it reads.

    A file that is no view of any pipeline is among what is broken, with the reason.
    """
    broken, files = list(discovery.broken), list["QueryFile"]()
    for path in (path for folder in folders for path in sorted(folder.glob("*.sql"))):
        try:
            files.append(_read(path))
        except StreamingError as error:
            broken.append(_broken(path, error))
    pipelines = {pipeline.name: pipeline for pipeline in discovery.declared}
    # A view may read that of another file, so whatever can be placed is, until nothing more can.
    while files:
        left = [file for file in files if not _place(file, pipelines, broken)]
        if len(left) == len(files):
            broken += [_broken(Path(file.path), _homeless(file, pipelines.values())) for file in left]
            break
        files = left
    return Discovery(tuple(pipelines.values()), tuple(broken))


def _read(path: Path) -> QueryFile:
    # Whoever has no such file loads no parser of SQL.
    from streaming.sql import QueryFile

    return QueryFile.read(path)


def _reads(file: QueryFile) -> tuple[str, ...]:
    """The names of what the query of a file reads."""
    from streaming.sql import relations_in

    return file.of or relations_in(file.sql, file.deterministic)


def _place(file: QueryFile, pipelines: dict[str, Pipeline], broken: list[BrokenModule]) -> bool:
    """Give a view to the pipeline that has what it reads; false where none has yet."""
    try:
        reads = _reads(file)
        for pipeline in pipelines.values():
            sources = _sources(pipeline)
            if sources.keys() >= {*reads}:
                view = View(
                    name=file.name,
                    sql=file.sql,
                    of=tuple(sources[name] for name in reads),
                    key=file.key,
                    deterministic=file.deterministic,
                    description=file.description,
                    every=file.every,
                )
                pipelines[pipeline.name] = _with(pipeline, view)
                return True
    except StreamingError as error:
        broken.append(_broken(Path(file.path), error))
        return True
    return False


def _sources(pipeline: Pipeline) -> Mapping[str, Stream | Operator]:
    """The streams and operators that a view of a pipeline may read, by name."""
    sources: tuple[Stream | Operator, ...] = (*pipeline.streams, *pipeline.operators)
    return {each.name: each for each in sources}


def _with(pipeline: Pipeline, view: View) -> Pipeline:
    values = {each.name: getattr(pipeline, each.name) for each in fields(pipeline)}
    return Pipeline(**{**values, "operators": (*pipeline.operators, view)})


def _homeless(file: QueryFile, pipelines: Iterable[Pipeline]) -> DeclarationError:
    reads = ", ".join(_reads(file))
    there = "; ".join(f"{pipeline.name}: {', '.join(_sources(pipeline))}" for pipeline in pipelines)
    return DeclarationError(
        f"view {file.name!r} reads {reads}, and no pipeline has all of it; there are {there or 'no pipelines'}",
        "correct the names, or declare what is missing in that pipeline.",
    )


def _broken(path: Path, error: StreamingError) -> BrokenModule:
    return BrokenModule(f"{path.parent.parent.name}/{FOLDER}/{path.name}", str(path), None, str(error))
