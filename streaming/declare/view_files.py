"""SQL views as files: a query, and what else is to be declared in comments at its beginning.

    -- key: country
    -- description: What each country has ordered.
    select country, sum(amount) as amount from orders group by country

A file is a view of the pipeline that has all that it reads. It is named after the file, unless it says `name`; `of`
names what it reads, where the query does not tell that by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from streaming.base import BrokenModule, DeclarationError, Discovery, StreamingError
from streaming.declare.operator import Operator
from streaming.declare.pipeline import Pipeline
from streaming.declare.sql_view import View
from streaming.declare.stream import Stream

FOLDER = "views"
"""The folder with the files of views, beside that of the pipelines."""
_ENTRY = re.compile(r"--\s*(\w+)\s*:\s*(.*?)\s*$")
_LISTS = ("key", "of", "deterministic")
_ENTRIES = ("name", "description", "every", *_LISTS)


@dataclass(frozen=True)
class ViewFile:
    """A file as it is written: its query, and the entries at its beginning, by name; `lines` says where each is."""

    path: Path
    sql: str
    entries: Mapping[str, str]
    lines: Mapping[str, int]

    @classmethod
    def read(cls, path: Path) -> ViewFile:
        """The file at a path.

        Raises:
            ViewFileError: an entry that nobody knows, or one that is there twice, with its line.
        """
        entries, lines = dict[str, str](), dict[str, int]()
        text = path.read_text(encoding="utf-8")
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip() and not line.lstrip().startswith("--"):
                break
            entry = _ENTRY.match(line.strip())
            if entry is None:
                continue
            name = entry[1].lower()
            if name not in _ENTRIES:
                raise ViewFileError(
                    f"{entry[1]!r} is nothing that a view declares; it may say: {', '.join(_ENTRIES)}. A comment that "
                    "is none of these has no colon after its first word.",
                    line=number,
                )
            if name in entries:
                raise ViewFileError(f"{name!r} is there twice, first in line {lines[name]}.", line=number)
            entries[name], lines[name] = entry[2], number
        return cls(path, text, entries, lines)

    @property
    def name(self) -> str:
        """The name of the view."""
        return self.entries.get("name") or self.path.stem

    def names(self, entry: str) -> tuple[str, ...]:
        """The names that an entry lists."""
        return tuple(name.strip().strip("`") for name in self.entries.get(entry, "").split(",") if name.strip())

    @property
    def reads(self) -> tuple[str, ...]:
        """The names of what the query reads.

        Raises:
            BadQuery: it is no query.
        """
        from streaming.sql import relations_in

        return self.names("of") or relations_in(self.sql, self.names("deterministic"))

    def view(self, sources: Mapping[str, Stream | Operator]) -> View:
        """The view, of these sources by their names, which have all that it reads.

        Raises:
            DeclarationError: what is declared makes no view.
            BadQuery: the query cannot be kept right.
        """
        return View(
            name=self.name,
            sql=self.sql,
            of=tuple(sources[name.lower()] for name in self.reads),
            key=self.names("key"),
            deterministic=self.names("deterministic"),
            description=self.entries.get("description", ""),
            every=self.entries.get("every"),
        )


class ViewFileError(DeclarationError):
    """A file of a view cannot be understood; `line` is where."""

    def __init__(self, problem: str, way_out: str = "", *, line: int | None = None) -> None:
        super().__init__(problem, way_out)
        self.line = line


def with_view_files(discovery: Discovery[Pipeline], folders: Iterable[Path]) -> Discovery[Pipeline]:
    """The declarations with the views of the files in these folders, each in the pipeline that has what it reads.

    A file that is no view of any pipeline is among what is broken, with the reason.
    """
    files, broken = list[ViewFile](), list(discovery.broken)
    for path in (path for folder in folders for path in sorted(folder.glob("*.sql"))):
        try:
            files.append(ViewFile.read(path))
        except ViewFileError as error:
            broken.append(_broken(path, error))
    pipelines = {pipeline.name: pipeline for pipeline in discovery.declared}
    # A view may read that of another file, so whatever can be placed is, until nothing more can.
    while files:
        left = [file for file in files if not _place(file, pipelines, broken)]
        if len(left) == len(files):
            broken += [_broken(file.path, _homeless(file, pipelines.values())) for file in left]
            break
        files = left
    return Discovery(tuple(pipelines.values()), tuple(broken))


def _place(file: ViewFile, pipelines: dict[str, Pipeline], broken: list[BrokenModule]) -> bool:
    """Give a view to the pipeline that has what it reads; false where none has yet."""
    try:
        reads = {name.lower() for name in file.reads}
        for pipeline in pipelines.values():
            sources = _sources(pipeline)
            if reads <= sources.keys():
                pipelines[pipeline.name] = _with(pipeline, file.view(sources))
                return True
    except StreamingError as error:
        broken.append(_broken(file.path, error))
        return True
    return False


def _sources(pipeline: Pipeline) -> dict[str, Stream | Operator]:
    """What a view of a pipeline may read, by its name."""
    sources: tuple[Stream | Operator, ...] = (*pipeline.streams, *pipeline.operators)
    return {each.name: each for each in sources}


def _with(pipeline: Pipeline, view: View) -> Pipeline:
    values = {each.name: getattr(pipeline, each.name) for each in fields(pipeline)}
    return Pipeline(**{**values, "operators": (*pipeline.operators, view)})


def _homeless(file: ViewFile, pipelines: Iterable[Pipeline]) -> DeclarationError:
    reads = ", ".join(file.reads)
    there = "; ".join(f"{pipeline.name}: {', '.join(_sources(pipeline))}" for pipeline in pipelines)
    return DeclarationError(
        f"view {file.name!r} reads {reads}, and no pipeline has all of it; there are {there or 'no pipelines'}",
        "correct the names, or declare what is missing in that pipeline.",
    )


def _broken(path: Path, error: StreamingError) -> BrokenModule:
    line = error.line if isinstance(error, ViewFileError) else None
    return BrokenModule(f"{path.parent.parent.name}/{FOLDER}/{path.name}", str(path), line, str(error))
