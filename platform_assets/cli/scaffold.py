"""`tidemark init` and `tidemark new`: a project of one's own, and the pieces that are added to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from types import ModuleType
from typing import Annotated, Literal

import typer

from platform_assets.cli.context import console
from platform_assets.cli.render import next_step
from platform_assets.reports.registry import declared_reports
from platform_assets.scaffold import (
    To,
    add_delivery,
    add_view,
    write_project,
    write_report,
    write_sql_view,
    write_stream,
    write_suite,
)
from streaming.base import BrokenModule, DeclarationError
from streaming.declare import Pipeline, find_pipeline, modules, package_of, packages, view_folders, written_pipelines

Kind = Literal["stream", "view", "delivery", "suite", "report"]


def init(
    name: Annotated[str, typer.Argument(help="Name of the project and of its package, such as acme.")],
    folder: Annotated[Path | None, typer.Option(help="Where to write it; a folder of that name if left out.")] = None,
) -> None:
    """Write a project of your own: a pipeline, its suite, a report, a test, and what Dagster loads."""
    target = folder or Path(name)
    for path in write_project(target, name):
        console.print(f"wrote {path}")
    next_step(console, f"cd {quote(str(target))} && make run", "takes its sample through its pipeline.")


def new(
    kind: Annotated[Kind, typer.Argument(help="What to add.")],
    name: Annotated[str, typer.Argument(help="Its name; of a suite, that of the pipeline whose tables it judges.")],
    of: Annotated[
        str | None, typer.Option(help="The pipeline of a view, delivery or report; not needed where there is one only.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Where to write it; where the project keeps such modules if left out.")
    ] = None,
    to: Annotated[To | None, typer.Option(help="The target of a delivery; files if left out.")] = None,
    sql: Annotated[bool, typer.Option("--sql", help="A view as a file of SQL.")] = False,
) -> None:
    """Add a piece to a project: a stream with its pipeline, a view, a delivery, a suite, or a report."""
    if sql and kind != "view":
        raise DeclarationError(f"--sql is of a view; a {kind} has no SQL.", "Leave it out.")
    if to is not None and kind != "delivery":
        raise DeclarationError(f"--to={to} names the target of a delivery; a {kind} has none.", "Leave it out.")
    if kind == "delivery":
        added = _delivery(name, of, to or "files")
    else:
        added = _sql_view(name, of, folder) if sql else _ADD[kind](name, of, folder)
    for path in added.paths:
        console.print(f"wrote {path}")
    next_step(console, added.command, added.why)


@dataclass(frozen=True)
class _Added:
    """The files that were written, and what to type next and why."""

    paths: list[Path]
    command: str
    why: str


def _stream(name: str, of: str | None, folder: Path | None) -> _Added:
    paths = write_stream(folder or _folder("pipelines"), name)
    if folder is not None:
        return _Added(paths, f"python {paths[0]}", "runs it over a sample.")
    return _Added(paths, f"tidemark run {name}", f"after a first file has landed in landing/{name} of the lake.")


def _view(name: str, of: str | None, folder: Path | None) -> _Added:
    pipeline, module = _pipeline(of)
    assert module.__file__ is not None
    path = add_view(Path(module.__file__), name)
    return _Added([path], f"tidemark run {pipeline.name}", "builds it from all that the log holds.")


def _sql_view(name: str, of: str | None, folder: Path | None) -> _Added:
    pipeline, _ = _pipeline(of)
    folders = view_folders()
    path = write_sql_view(folder or folders[0], name, pipeline)
    if path.parent.resolve() not in [each.resolve() for each in folders]:
        return _Added([path], f"mv {path} {folders[0]}", "puts it where views are found.")
    return _Added([path], f"tidemark run {pipeline.name}", "computes it from all that stands, and keeps it right.")


def _delivery(name: str, of: str | None, to: To) -> _Added:
    pipeline, module = _pipeline(of)
    assert module.__file__ is not None
    path = add_delivery(Path(module.__file__), name, to)
    return _Added([path], f"tidemark run {pipeline.name}", "delivers all that the log holds.")


def _suite(name: str, of: str | None, folder: Path | None) -> _Added:
    pipeline, _ = _pipeline(name)
    paths = write_suite(folder or _folder("suites"), pipeline)
    reports = [report.name for report in declared_reports().values() if report.pipeline.name == pipeline.name]
    if reports:
        return _Added(paths, f"tidemark report {reports[0]}", "is published only if all of it holds.")
    return _Added(paths, f"tidemark new report NAME --of {name}", "writes a report that asks for it.")


def _report(name: str, of: str | None, folder: Path | None) -> _Added:
    pipeline, module = _pipeline(of)
    paths = write_report(folder or _folder("reports"), name, pipeline, module.__name__)
    return _Added(paths, f"tidemark report {name}", "publishes it, if all that it reads is as expected.")


_ADD: dict[Kind, Callable[[str, str | None, Path | None], _Added]] = {
    "stream": _stream,
    "view": _view,
    "suite": _suite,
    "report": _report,
}


def _folder(kind: Literal["pipelines", "suites", "reports"]) -> Path:
    """The folder of the first package that holds declarations of this kind."""
    package = package_of(kind, packages(kind)[0])
    if isinstance(package, BrokenModule):
        raise DeclarationError(f"{package}.", "Correct it first.")
    return Path(next(iter(package.__path__)))


def _pipeline(name: str | None) -> tuple[Pipeline, ModuleType]:
    """The pipeline of that name, or the only one there is, as the module has it that declares it.

    It may be one that waits for its first view.
    """
    declared = written_pipelines()
    if name is None and len(declared) != 1:
        raise DeclarationError(
            f"there are {len(declared)} pipelines: {', '.join(declared) or 'none'}", "say which one with --of."
        )
    wanted = name or next(iter(declared))
    pipeline = declared[wanted] if wanted in declared else find_pipeline(wanted)
    candidates = [module for module in modules("pipelines") if isinstance(module, ModuleType)]
    return pipeline, next(
        module for module in candidates if getattr(getattr(module, "pipeline", None), "name", None) == pipeline.name
    )
