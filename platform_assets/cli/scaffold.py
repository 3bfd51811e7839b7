"""`tidemark init` and `tidemark new`: a project of one's own, and the skeleton of a pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from platform_assets.cli.context import console
from platform_assets.cli.render import next_step
from platform_assets.scaffold import write_project
from streaming.base import BrokenModule, DeclarationError
from streaming.declare import package_of, packages
from streaming.operations import write_skeleton


def init(
    name: Annotated[str, typer.Argument(help="Name of the project and of its package, such as acme.")],
    folder: Annotated[Path | None, typer.Option(help="Where to write it; a folder of that name if left out.")] = None,
) -> None:
    """Write a project of your own: a pipeline, its suite, a report, a test, and what Dagster loads."""
    target = folder or Path(name)
    for path in write_project(target, name):
        console.print(f"wrote {path}", highlight=False)
    next_step(console, f"cd {target} && make run", "takes its sample through its pipeline.")


def new(
    name: Annotated[str, typer.Argument(help="Name of the new pipeline.")],
    folder: Annotated[
        Path | None, typer.Option(help="Where to write it; where pipelines are found if left out.")
    ] = None,
) -> None:
    """Write the skeleton of a new pipeline: a declaration that runs as a stream and as a batch."""
    paths = write_skeleton(folder or _package_folder(), name)
    for path in paths:
        console.print(f"wrote {path}", highlight=False)
    if folder is None:
        next_step(console, f"tidemark run {name}", "after a first file is in its landing folder.")
    else:
        next_step(console, f"python {paths[0]}", "runs it over a sample.")


def _package_folder() -> Path:
    """The folder of the first package that holds pipelines."""
    package = package_of("pipelines", packages("pipelines")[0])
    if isinstance(package, BrokenModule):
        raise DeclarationError(f"{package}. Correct it first.")
    return Path(next(iter(package.__path__)))
