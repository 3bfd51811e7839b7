"""Streams that run, as a table for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from streaming.always_on.overview import Overview

_COLOURS = {"running": "green", "failed": "bold red", "restarting": "yellow", "stopped": "dim", "paused": "cyan"}


def status_table(overviews: Sequence[Overview], now: datetime) -> Table:
    """One row per pipeline; times to go by are UTC, rates are rows a second over the last two minutes."""
    table = Table(box=SIMPLE_HEAD, title=f"streams at {now:%H:%M:%S} UTC", title_justify="left")
    table.add_column("pipeline")
    table.add_column("state")
    table.add_column("for", justify="right")
    for name in ("batch", "rows/s", "rejected", "late", "waiting", "watermark", "p95 latency", "memory", "restarts"):
        table.add_column(name, justify="right")
    for seen in overviews:
        table.add_row(seen.pipeline.name, *_cells(seen, now))
    return table


def _cells(seen: Overview, now: datetime) -> list[str | Text]:
    process = seen.process
    state = Text(seen.state, style=_COLOURS.get(seen.state, ""))
    since = "" if seen.since is None else length((now - seen.since).total_seconds())
    if process is None:
        return [state, since, *[""] * 8, str(seen.restarts)]
    return [
        Text.assemble(state, " (slow)") if process.slow else state,
        since,
        "-" if process.newest_batch is None else f"{process.newest_batch:,}",
        f"{process.input_rate:,.0f}",
        f"{process.rejected:,}",
        f"{process.late:,}",
        "" if process.backlog_files is None else f"{process.backlog_files:,} files",
        "-" if process.watermark is None else f"{process.watermark:%Y-%m-%d %H:%M:%S}",
        "-" if process.latency is None else length(process.latency[1]),
        "" if process.memory_bytes is None else f"{process.memory_bytes / 2**20:,.0f} MB",
        str(seen.restarts),
    ]


def length(seconds: float) -> str:
    """A length of time in its two largest units, such as `2 h 5 min`; tenths of a second below ten seconds."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86_400
    if days:
        return f"{days:.0f} d {hours % 24:.0f} h"
    if hours:
        return f"{hours:.0f} h {minutes % 60:.0f} min"
    return f"{minutes:.0f} min {seconds % 60:.0f} s" if minutes else f"{seconds:.0f} s"
