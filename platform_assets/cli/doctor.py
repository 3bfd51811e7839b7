"""`tidemark doctor`: what can rot in a lake, named, explained, and healed where that is safe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.text import Text

from platform_assets.cli.context import PipelineName, console, current_lake
from platform_assets.cli.exit_codes import ExitCode
from platform_assets.cli.render import next_step
from streaming.declare import find_pipeline
from streaming.operations import Ailment, examine, heal


def doctor(
    pipeline_name: PipelineName,
    fix: Annotated[bool, typer.Option("--fix", help="Heal what can be healed without a decision of yours.")] = False,
) -> None:
    """Look for what can rot: checkpoints, files, leases, tables that do not go together.

    Numbers are what `tidemark audit` checks. Exits with 3 if something is broken; notes break nothing.
    """
    pipeline, lake = find_pipeline(pipeline_name), current_lake()
    healed: Sequence[Ailment] = ()
    if fix:
        healed, left = heal(lake, pipeline)
    else:
        left = examine(lake, pipeline)
    for ailment in healed:
        console.print(Text.assemble(("healed", "green"), f" {ailment.kind}: {ailment.subject}"), soft_wrap=True)
    for ailment in left:
        _print(ailment)
    broken = [ailment for ailment in left if not ailment.note]
    if not broken:
        console.print("Nothing is broken.")
        next_step(console, f"tidemark audit {pipeline_name}", "proves every number from the log.")
        return
    if any(ailment.heal is not None for ailment in broken):
        next_step(console, f"tidemark doctor {pipeline_name} --fix", "heals what is marked so, and nothing else.")
    else:
        next_step(console, f"tidemark savepoints {pipeline_name}", "lists what one can go back to.")
    raise typer.Exit(ExitCode.LAW_BROKEN)


def _print(ailment: Ailment) -> None:
    head = f"{'note: ' if ailment.note else ''}{ailment.kind}: {ailment.subject}"
    console.print(head, style="bold", soft_wrap=True)
    console.print(f"  {ailment.means}.", soft_wrap=True)
    what = "--fix does this: " if ailment.heal is not None else "What to do: "
    console.print(f"  {what}{ailment.advice}.", soft_wrap=True)
