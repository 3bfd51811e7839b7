"""The summary that a demo prints: first results beside the truth, the audit, and where to look next."""

from __future__ import annotations

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from platform_assets.cli.next_steps import after_demo
from platform_assets.cli.render import changed, next_step, print_findings
from platform_assets.demo.demo import REPORT, Demonstrated
from platform_assets.demo.pipelines.flights import pipeline
from platform_assets.home import dagster_home
from platform_assets.reports.publication import read_report
from streaming.audit import audit
from streaming.spark import start_session

_WHICH = ("first", "current")


def show_demonstrated(console: Console, done: Demonstrated) -> bool:
    """Print the report, the audit, the paths and the next command; returns whether every law holds."""
    sections = read_report(done.lake, REPORT)
    assert sections is not None, "a demo that ended without an error has published its report"
    _print_bias(console, sections[REPORT].sort_by([("day", "ascending"), ("origin", "ascending")]).to_pylist())
    held = print_findings(console, audit(start_session(), done.lake, pipeline))
    console.print(f"The demo took {sum(done.seconds.values()):.0f} s. It left")
    for what, where in (
        ("tables", done.lake.root),
        ("report", done.lake.report(REPORT)),
        ("csv", f"{done.lake.report(REPORT)}.csv"),
        ("chart", f"{done.lake.report(REPORT)}.png"),
        ("Dagster", str(dagster_home())),
    ):
        console.print(f"  {what:8} {where}", soft_wrap=True)
    next_step(console, *after_demo())
    return held


def _print_bias(console: Console, rows: list[dict[str, Any]]) -> None:
    table = Table(
        title="What the first results said, and what is current",
        title_justify="left",
        header_style="bold",
        box=SIMPLE_HEAD,
    )
    for name in ("day", "origin"):
        table.add_column(name, no_wrap=True)
    for name in ("flights", "late", "mean delay, min", "on time"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            str(row["day"]),
            row["origin"],
            _change(row, "flights", "{:,}"),
            f"{row['late_rows']:,}",
            _change(row, "mean_dep_delay", "{:.1f}"),
            _change(row, "on_time_share", "{:.1%}"),
        )
    console.print(table)
    first, current = (_mean_delay(rows, which) for which in _WHICH)
    console.print(
        Text.assemble(
            "Mean delay of all departures: ",
            (f"{first:.1f}", "bold"),
            " minutes in the first results, ",
            (f"{current:.1f}", "bold"),
            " once the late rows are in:\nthe most delayed flights are exactly those that arrive late.\n",
        ),
    )


def _mean_delay(rows: list[dict[str, Any]], which: str) -> float:
    """The mean over all rows, weighted by the flights that left."""
    left = [(row[f"{which}_flights"] - row[f"{which}_cancelled"], row[f"{which}_mean_dep_delay"]) for row in rows]
    departures = sum(flights for flights, mean in left if mean is not None)
    return sum(flights * mean for flights, mean in left if mean is not None) / departures


def _change(row: dict[str, Any], measure: str, shape: str) -> Text:
    first, current = (
        "-" if row[f"{which}_{measure}"] is None else shape.format(row[f"{which}_{measure}"]) for which in _WHICH
    )
    return changed(first, current)
