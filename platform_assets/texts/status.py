"""Streams that run, as a table for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from streaming.base import counted
from streaming.service import Overview, ProcessStatus

_COLOURS = {"running": "green", "failed": "bold red", "restarting": "yellow", "stopped": "dim", "paused": "cyan"}


def status_table(overviews: Sequence[Overview], now: datetime) -> Table:
    """A few lines per pipeline, so that 80 columns hold them; times are UTC, rates are of the last two minutes.

    `p95` is the end-to-end latency that 95 % of the newest rows stay below.
    """
    table = Table(box=SIMPLE_HEAD, title=f"streams at {now:%H:%M:%S} UTC", title_justify="left", show_edge=False)
    for name in ("pipeline", "state"):
        table.add_column(name)
    for name in ("input", "put aside", "batch", "watermark", "memory"):
        table.add_column(name, justify="right")
    for overview in overviews:
        restarts = f"{overview.restarts:,} restart{'' if overview.restarts == 1 else 's'}"
        table.add_row(f"{overview.pipeline.name}\n{restarts}", *_cells(overview, now))
    return table


def _cells(overview: Overview, now: datetime) -> list[str | Text]:
    process = overview.process
    since = "" if overview.since is None else length((now - overview.since).total_seconds())
    slow = " (slow)" if process is not None and process.slow else ""
    state = Text.assemble((overview.state, _COLOURS.get(overview.state, "")), f"{slow}\n{since}")
    if process is None:
        return [state]
    return [
        state,
        f"{process.input_rate:,.0f} rows/s\n{process.waiting}"
        + (f"\ncaught up in {length(process.catch_up_seconds)}" if process.catch_up_seconds else ""),
        f"{process.rejected:,} rejected\n{process.late:,} late{_warnings(process)}",
        ("-" if process.newest_batch is None else f"{process.newest_batch:,}")
        + ("" if process.latency is None else f"\np95 {length(process.latency[1])}")
        + _behind(process),
        ("-" if process.watermark is None else f"{process.watermark:%Y-%m-%d\n%H:%M:%S}")
        + ("" if overview.skew is None else f"\nskew {length(overview.skew.by.total_seconds())}"),
        "" if process.memory_bytes is None else f"{process.memory_bytes / 2**20:,.0f} MB",
    ]


def _warnings(process: ProcessStatus) -> str:
    """The number of times that valid rows broke a rule which only warns; empty where none did."""
    warnings = sum(rows for query in process.queries.values() for rows in query.warned.values())
    return f"\n{counted(warnings, 'warning')}" if warnings else ""


def _behind(process: ProcessStatus) -> str:
    """The operator that is furthest behind its logs; one batch is no lag, for that is the one it follows now."""
    name, batches = max(
        ((name, query.behind or 0) for name, query in process.queries.items()),
        key=lambda each: each[1],
        default=("", 0),
    )
    return f"\n{name}\n{batches:,} behind" if batches > 1 else ""


def drain_line(overview: Overview, now: datetime) -> str:
    """The progress of a stream's drain: what its queries have written, and the batch that runs in each."""
    if overview.process is None:
        return f"{overview.pipeline.name}: {overview.state}" + (f", {overview.why}" if overview.why else "")
    parts = [f"{overview.pipeline.name}: {'draining' if overview.state == 'draining' else 'asked to drain'}"]
    for name, query in overview.process.queries.items():
        running = ""
        if query.running_since is not None:
            running = f", batch {query.running_batch} for {length((now - query.running_since).total_seconds())}"
        parts.append(f"{name} {query.rows:,} rows in {query.batches:,} batches{running}")
    return "; ".join(parts)


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
