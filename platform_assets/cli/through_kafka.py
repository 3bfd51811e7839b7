"""The summary of the demo through a broker: what the database said and says, and whether it is right."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from platform_assets.cli.render import changed, next_step, print_findings
from platform_assets.demo.kafka import PIPELINES, ThroughKafka
from streaming.audit import audit, audit_deliveries
from streaming.spark import start_session


def show_through_kafka(console: Console, done: ThroughKafka) -> bool:
    """Print what the database says, the audit of lake and database, and where both are; whether every law holds.

    On a terminal, broker and database answer until Enter is pressed.
    """
    table = Table(
        title="What the database said after the first results, and says with the corrections",
        title_justify="left",
        header_style="bold",
        box=SIMPLE_HEAD,
    )
    table.add_column("origin")
    for name in ("flights", "mean delay, min"):
        table.add_column(name, justify="right", no_wrap=True)
    for first, current in zip(done.first, done.current, strict=True):
        table.add_row(
            current["origin"],
            changed(f"{first['flights']:,}", f"{current['flights']:,}"),
            changed(f"{first['mean_dep_delay']:.1f}", f"{current['mean_dep_delay']:.1f}"),
        )
    console.print(table)
    spark = start_session()
    # The audit of the contents of a target repeats the counts of its rows.
    laws = dict.fromkeys((*audit(spark, done.lake, done.pipeline), *audit_deliveries(spark, done.lake, done.pipeline)))
    held = print_findings(console, laws)
    console.print(f"The demo took {sum(done.seconds.values()):.0f} s. It left")
    for what, where in (
        ("tables", done.lake.root),
        ("topic", f"flights, on {done.servers}"),
        ("database", f"tables flights and departures_by_origin: psql '{done.connection}'"),
    ):
        console.print(f"  {what:8} {where}", soft_wrap=True)
    if console.is_terminal:
        console.input("Broker and database answer until you press Enter. ")
    next_step(console, f"TIDEMARK_PIPELINES={PIPELINES} tidemark ui", "opens Dagster on the runs and the graph.")
    return held
