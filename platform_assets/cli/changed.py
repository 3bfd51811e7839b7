"""`tidemark changed`: the days, or keys, that a model behind a view computes again."""

from __future__ import annotations

from typing import Annotated

import typer

from platform_assets.cli.context import AsJson, OperatorName, console, current_lake, find_operator
from platform_assets.cli.documents import ChangedDocument
from platform_assets.cli.render import next_step, print_first
from streaming.reading import changed as read_changed


def changed(
    name: OperatorName,
    since: Annotated[
        int,
        typer.Option(metavar="REVISION", help="The revision that is known already; -1 is before the first.", min=-1),
    ] = -1,
    by: Annotated[
        str | None, typer.Option(help="Columns of the results, such as 'country,_day'; their day if left out.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Parts to print; 20 if left out.", min=1)] = None,
    as_json: AsJson = False,
) -> None:
    """Print the days, or keys, whose results differ from those at a revision; starts no Spark.

    A model that is computed from what is current of a view computes these again, and all others never.
    """
    pipeline, operator = find_operator(name)
    columns = [entry.strip() for entry in (by or "").split(",") if entry.strip()]
    found = read_changed(pipeline, operator, since=since, by=columns, lake=current_lake())
    if as_json:
        ChangedDocument(lake=current_lake().root, **found.document()).print()
        return
    console.print(str(found), soft_wrap=True)
    if found.parts.num_rows:
        print_first(console, found.parts, "changed", limit, chooses_columns=False)
    next_step(
        console,
        f"tidemark changed {name} --since {found.revision}",
        "tells the next time what has changed from now on.",
    )
