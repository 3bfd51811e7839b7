"""Pieces of a project, each written from a template as something that runs, to be made one's own."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from string import Template

from streaming.base import DeclarationError, check_name
from streaming.declare import CORRECTIONS, Pipeline


def write_stream(folder: Path, name: str) -> list[Path]:
    """Write `<name>.py`, a pipeline and its stream, and `<name>_batch.py` into `folder`; return their paths.

    In the folder of a package the modules import each other by their full names, anywhere else as neighbours.

    Raises:
        DeclarationError: the name is not allowed, or one of the files is there already; nothing is written.
    """
    check_name("pipeline", name)
    package = _package(folder)
    written = {}
    for target, template in ((folder / f"{name}.py", "stream"), (folder / f"{name}_batch.py", "batch")):
        command = f"python -m {package}.{target.stem}" if package else f"python {target.name}"
        declared_in = f"{package}.{name}" if package else name
        written[target] = filled(template, name=name, command=command, declared_in=declared_in)
    return _written(written, name)


def write_suite(folder: Path, pipeline: Pipeline) -> list[Path]:
    """Write `<pipeline>.py` into `folder`, with an expectation for each table of its views, and return its path.

    Raises:
        DeclarationError: the file is there already.
    """
    entries = [
        f'    "{table}": (always("{column}_present", "{column} is not null", "every window has its {column}"),),'
        for view in pipeline.views
        for column in list(view.aggregates)[:1]
        for table in (view.name, *([view.table_name(CORRECTIONS)] if view.corrected else []))
    ]
    text = filled("suite", pipeline=pipeline.name, entries="\n".join(entries))
    return _written({folder / f"{pipeline.name}.py": text}, pipeline.name)


def write_report(folder: Path, name: str, pipeline: Pipeline, module: str) -> list[Path]:
    """Write `<name>.py`, a report on the first view of the pipeline that `module` declares, into `folder`; its path.

    Raises:
        DeclarationError: the name is not allowed, the file is there already, or the pipeline has no view.
    """
    check_name("report", name)
    if not pipeline.views:
        raise DeclarationError(
            f"pipeline {pipeline.name!r} has no view to report on",
            "add one with `tidemark new view NAME`.",
            pipeline=pipeline.name,
        )
    view = pipeline.views[0]
    columns = (*view.identity, *view.aggregates)
    text = filled(
        "report",
        name=name,
        module=module,
        view=view.name,
        names=", ".join(sorted((view.name, "pipeline"))),
        said=", ".join(columns),
        columns=", ".join(f'"{column}"' for column in columns),
        identity=", ".join(f'"{column}"' for column in view.identity),
    )
    return _written({folder / f"{name}.py": text}, name)


def write_sql_view(folder: Path, name: str, pipeline: Pipeline) -> Path:
    """Write `<name>.sql`, a query over the first stream of the pipeline, into `folder`, and return its path.

    Raises:
        DeclarationError: the name is not allowed, or the file is there already.
    """
    check_name("SQL view", name)
    stream = pipeline.streams[0]
    key = next((column for column in stream.columns if column != stream.event_time), stream.event_time)
    text = filled("sql_view", name=name, stream=stream.name, key=f"`{key}`" if not key.isidentifier() else key)
    return _written({folder / f"{name}.sql": text}, name)[0]


def filled(template: str, **values: str) -> str:
    """The template of that name with `values` in it."""
    source = files(__package__) / "templates" / f"{template}.template"
    return Template(source.read_text(encoding="utf-8")).substitute(values)


def _written(texts: Mapping[Path, str], name: str) -> list[Path]:
    for target in texts:
        if target.exists():
            raise DeclarationError(
                f"{str(target)!r} exists already and is left as it is",
                f"choose another name than {name!r}, or move the file away.",
                value=str(target),
            )
    for target, text in texts.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return list(texts)


def _package(folder: Path) -> str:
    """The dotted name of the package that `folder` is, empty where it is none."""
    parts: list[str] = []
    here = folder.resolve()
    while (here / "__init__.py").is_file():
        parts.insert(0, here.name)
        here = here.parent
    return ".".join(parts)
