"""`tidemark explain`: how a view is computed, and why so."""

from __future__ import annotations

from rich.table import Table

from platform_assets.cli.context import OperatorName, console, current_lake, find_operator, spark_session
from platform_assets.cli.render import next_step
from streaming.operators import runtime_of


def explain(view: OperatorName) -> None:
    """Explain how a view is computed and why so, what it keeps, how far it is."""
    pipeline, operator = find_operator(view)
    with spark_session() as spark:
        lines = runtime_of(operator, current_lake()).explain(spark)
    table = Table(show_header=False, box=None, title=f"{pipeline.name}/{operator.name}", title_justify="left")
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for heading, text in lines.items():
        table.add_row(heading, text)
    console.print(table)
    next_step(console, f"tidemark bench {pipeline.name}", "replays a sample of its log, and says where the time goes.")
