"""SQL views as files, each in the pipeline that has what it reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from streaming.base import BrokenModule, DeclarationError, Discovery, StreamingError
from streaming.declare.operator import ExternalTable, Operator
from streaming.declare.pipeline import Pipeline
from streaming.declare.sql_view import View
from streaming.declare.stream import Stream

if TYPE_CHECKING:
    from streaming.sql import QueryFile

FOLDER = "views"
"""The folder with the files of views, beside that of the pipelines."""

_Source = Stream | Operator | ExternalTable


def with_view_files(discovery: Discovery[Pipeline], folders: Iterable[Path]) -> Discovery[Pipeline]:
    """The declarations with the views of the files in these folders, each in the pipeline that has what it reads.

    A file that is no view of any pipeline is among what is broken, with the reason, and so is a pipeline from whose
    streams nothing is computed then.
    """
    broken, files = list(discovery.broken), list[_ViewFile]()
    for path in (path for folder in folders for path in sorted(folder.glob("*.sql"))):
        try:
            files.append(_ViewFile.read(path))
        except StreamingError as error:
            broken.append(_broken(path, error))
    pipelines = {pipeline.name: pipeline for pipeline in discovery.declared}
    # A view may read that of another file, so whatever can be placed is, until nothing more can.
    while files:
        left = [file for file in files if not _place(file, pipelines, broken)]
        if len(left) == len(files):
            broken += [_broken(file.path, _homeless(file, pipelines)) for file in left]
            break
        files = left
    return Discovery(tuple(pipelines.values()), tuple(broken), discovery.places).without(_idle(pipelines.values()))


class _ViewFile:
    """A file with a view, parsed once for as long as it stays as it is."""

    _parsed: ClassVar[dict[Path, tuple[tuple[int, ...], _ViewFile]]] = {}

    def __init__(self, path: Path, query: QueryFile) -> None:
        self.path = path
        self.query = query
        self._view: View | None = None

    @classmethod
    def read(cls, path: Path) -> _ViewFile:
        """The file at a path.

        Raises:
            DeclarationError: it is no text, or its head is wrong.
        """
        # Whoever has no such file loads no parser of SQL.
        from streaming.sql import QueryFile

        try:
            about = path.stat()
        except OSError as error:
            raise DeclarationError(f"{path} cannot be read: {error}", value=str(path)) from error
        # Looked at before it is read: what changes in between is read again next time.
        stamp = (about.st_mtime_ns, about.st_size, about.st_ino)
        there = cls._parsed.get(path)
        if there is None or there[0] != stamp:
            there = cls._parsed[path] = stamp, cls(path, QueryFile.read(path))
        return there[1]

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """The names of what the query reads.

        Raises:
            BadQuery: it cannot be parsed.
        """
        from streaming.sql import relations_in

        return self.query.of or relations_in(self.query.sql, self.query.deterministic)

    def external(self, pipelines: Mapping[str, Pipeline]) -> Mapping[str, ExternalTable] | None:
        """The tables of others that its head names; None while an operator that it names is not there.

        Raises:
            DeclarationError: a table cannot be read, or a name is there twice.
        """
        names = [name for name, _, _ in self.query.tables]
        if len({*names}) < len(names):
            raise DeclarationError(f"{self.path} names tables {', '.join(names)}, one of them twice", "name each once.")
        tables = dict[str, ExternalTable]()
        for name, place, schema in self.query.tables:
            pipeline, _, operator = place.partition(".")
            there = {each.name: each for each in pipelines[pipeline].operators} if pipeline in pipelines else {}
            if not schema and operator not in there:
                return None
            tables[name] = self._same(ExternalTable(name, place if schema else there[operator], schema))
        return tables

    def _same(self, table: ExternalTable) -> ExternalTable:
        """The table itself, or the one that the view has already where it is no other."""
        before = () if self._view is None else self._view.external
        return next((each for each in before if each == table), table)

    def view(self, sources: Mapping[str, _Source]) -> View:
        """The view over these sources, analysed once for the same ones.

        Raises:
            StreamingError: it cannot be kept right, with the reason.
        """
        of, query = tuple(sources[name] for name in self.reads), self.query
        view = self._view
        if view is None or len(of) != len(view.of) or any(a is not b for a, b in zip(of, view.of, strict=True)):
            view = View(
                name=query.name,
                sql=query.sql,
                of=of,
                key=query.key,
                deterministic=query.deterministic,
                description=query.description,
                every=query.every,
            )
            self._view = view
        return view


def _place(file: _ViewFile, pipelines: dict[str, Pipeline], broken: list[BrokenModule]) -> bool:
    """Give a view to the pipeline that has what it reads; false where none has yet."""
    try:
        external = file.external(pipelines)
        for pipeline in pipelines.values() if external is not None else ():
            sources = {**_sources(pipeline), **(external or {})}
            if sources.keys() >= {*file.reads}:
                pipelines[pipeline.name] = _with(pipeline, file.view(sources))
                return True
    except StreamingError as error:
        broken.append(_broken(file.path, error))
        return True
    return False


def _sources(pipeline: Pipeline) -> Mapping[str, _Source]:
    """The streams and operators that a view of a pipeline may read, by name."""
    sources: tuple[_Source, ...] = (*pipeline.streams, *pipeline.operators)
    return {each.name: each for each in sources}


def _with(pipeline: Pipeline, view: View) -> Pipeline:
    values = {each.name: getattr(pipeline, each.name) for each in fields(pipeline)}
    return Pipeline(**{**values, "operators": (*pipeline.operators, view)})


def _idle(pipelines: Iterable[Pipeline]) -> Mapping[str, str]:
    """The pipelines from whose streams nothing is computed, by name, each with what to do about it."""
    idle = {}
    for pipeline in pipelines:
        try:
            pipeline.check_computes()
        except DeclarationError as error:
            idle[pipeline.name] = str(error)
    return idle


def _homeless(file: _ViewFile, pipelines: Mapping[str, Pipeline]) -> DeclarationError:
    if file.external(pipelines) is None:
        operators = ", ".join(f"{name}.{each.name}" for name, of in pipelines.items() for each in of.operators)
        places = ", ".join(place for _, place, schema in file.query.tables if not schema)
        return DeclarationError(
            f"view {file.query.name!r} names tables at {places}, and operators are: {operators or 'none'}",
            "correct the names, or give the columns of a table of files: `-- table: NAME at PLACE (id bigint)`.",
        )
    outside = {name for name, _, _ in file.query.tables}
    reads = ", ".join(name for name in file.reads if name not in outside)
    there = "; ".join(f"{name}: {', '.join(_sources(pipeline))}" for name, pipeline in pipelines.items())
    return DeclarationError(
        f"view {file.query.name!r} reads {reads}, and no pipeline has all of it; there are {there or 'no pipelines'}",
        "correct the names, or declare what is missing in that pipeline; where a table of others is, say at the head "
        "of the file: `-- table: NAME at PLACE (id bigint, name string)`, or `-- table: NAME at pipeline.operator`.",
    )


def _broken(path: Path, error: StreamingError) -> BrokenModule:
    return BrokenModule(f"{path.parent.parent.name}/{FOLDER}/{path.name}", str(path), None, str(error))
