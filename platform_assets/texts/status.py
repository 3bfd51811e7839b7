"""Streams that run, as a table for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from streaming.service import Overview

_COLOURS = {"running": "green", "failed": "bold red", "restarting": "yellow", "stopped": "dim", "paused": "cyan"}


def status_table(overviews: Sequence[Overview], now: datetime) -> Table:
    """Two lines per pipeline, so that 80 columns hold them; times to go by are UTC, rates are of the last two minutes.

    `p95` is the end-to-end latency that 95 % of the newest rows stay below.
    """
    table = Table(box=SIMPLE_HEAD, title=f"streams at {now:%H:%M:%S} UTC", title_justify="left", show_edge=False)
    for name in ("pipeline", "state"):
        table.add_column(name)
    for name in ("input", "put aside", "batch", "watermark", "memory"):
        table.add_column(name, justify="right")
    for seen in overviews:
        restarts = f"{seen.restarts:,} restart{'' if seen.restarts == 1 else 's'}"
        table.add_row(f"{seen.pipeline.name}\n{restarts}", *_cells(seen, now))
    return table


def _cells(seen: Overview, now: datetime) -> list[str | Text]:
    process = seen.process
    since = "" if seen.since is None else length((now - seen.since).total_seconds())
    slow = " (slow)" if process is not None and process.slow else ""
    state = Text.assemble((seen.state, _COLOURS.get(seen.state, "")), f"{slow}\n{since}")
    if process is None:
        return [state]
    return [
        state,
        f"{process.input_rate:,.0f} rows/s\n{process.waiting}",
        f"{process.rejected:,} rejected\n{process.late:,} late",
        ("-" if process.newest_batch is None else f"{process.newest_batch:,}")
        + ("" if process.latency is None else f"\np95 {length(process.latency[1])}"),
        "-" if process.watermark is None else f"{process.watermark:%Y-%m-%d\n%H:%M:%S}",
        "" if process.memory_bytes is None else f"{process.memory_bytes / 2**20:,.0f} MB",
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
