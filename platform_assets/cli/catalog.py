"""`tidemark catalog`: a catalog of other engines is told what the lake publishes."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Literal

import typer

from platform_assets.cli.completion import pipeline_names
from platform_assets.cli.context import console, current_lake
from platform_assets.cli.render import next_step, print_rows
from streaming.base import counted
from streaming.catalogs import CatalogKind, CatalogSettings, Change, Difference, apply_difference, compare, open_catalog
from streaming.declare import declared_pipelines, find_pipeline

_DONE = {"create": "registered", "change": "changed", "withdraw": "withdrawn"}
_TO_DO = {"create": "to be registered", "change": "to be changed", "withdraw": "to be withdrawn"}


def catalog(
    action: Annotated[Literal["sync"], typer.Argument(help="sync: make the catalog agree with the lake.")],
    pipeline_name: Annotated[
        str | None,
        typer.Argument(
            metavar="[PIPELINE]", help="Name of a declared pipeline; all, if left out.", autocompletion=pipeline_names
        ),
    ] = None,
    to: Annotated[CatalogKind | None, typer.Option(help="Kind of the catalog, if not TIDEMARK_CATALOG_KIND.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would be done.")] = False,
) -> None:
    """Tell a catalog of other engines where tables lie, what they mean, and whose they are; starts no Spark.

    Tables that are gone are withdrawn; those of others are never touched. TIDEMARK_CATALOG_KIND and _URL name it.
    """
    given = CatalogSettings()
    settings = given if to is None else given.model_copy(update={"kind": to})
    lake = current_lake()
    pipelines = [*declared_pipelines().values()] if pipeline_name is None else [find_pipeline(pipeline_name)]
    with open_catalog(settings) as registry:
        found = compare(registry, lake, pipelines, settings.schema_name, all_of_lake=pipeline_name is None)
        command = " ".join(filter(None, ("tidemark catalog sync", pipeline_name, to and f"--to {to}")))
        if dry_run:
            _print_dry(found, registry.address, command)
            return

        def tell(change: Change) -> None:
            # At once, so that what was done is told also where the next one fails.
            line = f"{_DONE[change.action]} {registry.full_name(change.entry)}{f': {change.why}' if change.why else ''}"
            console.print(line, soft_wrap=True)

        apply_difference(registry, lake, found, tell)
        count = found.agreeing + sum(change.action != "withdraw" for change in found.changes)
        _print_summary(found, f"{counted(count, 'table')} in {registry.address}", _DONE)
    if count == 0 and not found.changes:
        next_step(
            console, f"tidemark run {pipelines[0].name}" if pipelines else "tidemark init", "makes tables to tell."
        )
        return
    next_step(
        console, f"{command} --dry-run", "tells later whether catalog and lake still agree, as a check in Dagster does."
    )


def _print_dry(found: Difference, address: str, command: str) -> None:
    rows = [(_TO_DO[change.action], str(change.entry), change.why) for change in found.changes]
    rows += [("taken by somebody else", str(entry), entry.location) for entry in found.taken]
    if rows:
        print_rows(console, f"Catalog {address}", ("", "table", "why"), rows)
    _print_summary(found, f"{counted(found.agreeing, 'table')} as in the lake", _TO_DO)
    if found.agrees:
        next_step(console, command, "has nothing to do until a table comes, goes or changes its columns.")
    else:
        next_step(console, command, "does it.")


def _print_summary(found: Difference, counts: str, words: dict[str, str]) -> None:
    actions = Counter(change.action for change in found.changes)
    parts = [f"{actions[action]} {words[action]}" for action in ("create", "change", "withdraw")]
    console.print(f"{counts}; {', '.join(parts)}.", soft_wrap=True)
