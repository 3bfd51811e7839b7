"""`tidemark setup`: fetch ahead of time what the first run would fetch."""

from __future__ import annotations

from typing import Annotated

import typer

from platform_assets.cli.context import console
from platform_assets.cli.render import next_step
from streaming.base import SettingsError
from streaming.lake import find_project
from streaming.operations import make_class_archive
from streaming.spark import CORE, GROUPS, jars_folder, jars_of


def setup(
    others: Annotated[
        list[str] | None,
        typer.Option("--with", help=f"A group of jars that not every pipeline needs; repeatable: {', '.join(GROUPS)}."),
    ] = None,
) -> None:
    """Fetch ahead of time what the first run would fetch: the jars.

    Also makes the class archive that lets Spark start faster.
    """
    unknown = sorted({*(others or ())} - {*GROUPS})
    if unknown:
        raise SettingsError(
            f"there are no jars {', '.join(unknown)}; groups are: {', '.join(GROUPS)}.", choices=tuple(GROUPS)
        )
    jars = []
    for group in dict.fromkeys((CORE, *(GROUPS[name] for name in others or ()))):
        with console.status(f"fetching the jars for {group.about}"):
            jars += jars_of(group)
    with console.status("making the class archive"):
        make_class_archive()
    for jar in jars:
        console.print(f"{jar}", soft_wrap=True)
    console.print(f"A machine without a network needs a copy of {jars_folder()}: TIDEMARK_JARS says where it lies.")
    if find_project() is None:
        next_step(console, "tidemark init acme", "writes a project of your own.")
    else:
        next_step(console, "tidemark status", "names the pipelines of this project.")
