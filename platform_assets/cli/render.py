"""Frames, findings and reports as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from streaming.operators import Finding

_WIDEST = 60


def print_frame(console: Console, frame: DataFrame, title: str, limit: int) -> None:
    """The first `limit` rows of `frame`, payloads as text, and whether there are more."""
    rows = frame.limit(limit + 1).collect()
    table = Table(title=title, title_justify="left", header_style="bold")
    for name in frame.columns:
        table.add_column(name, overflow="fold")
    for row in rows[:limit]:
        table.add_row(*(_text(value) for value in row))
    console.print(table)
    if len(rows) > limit:
        console.print(f"... and more; --limit {limit * 10} shows more of them.")


def print_table(console: Console, rows: pa.Table, title: str) -> None:
    """All rows of a report's section."""
    table = Table(title=title, title_justify="left", header_style="bold")
    for name in rows.column_names:
        table.add_column(name, overflow="fold")
    for row in rows.to_pylist():
        table.add_row(*(_text(value) for value in row.values()))
    console.print(table)


def print_rows(console: Console, title: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Rows of text under their heads."""
    table = Table(title=title, title_justify="left", header_style="bold")
    for head in heads:
        table.add_column(head, overflow="fold")
    for row in rows:
        table.add_row(*(escape(cell) for cell in row))
    console.print(table)


def print_findings(console: Console, findings: Iterable[Finding]) -> bool:
    """The audit, law by law; returns whether every law holds."""
    table = Table(title="Audit", title_justify="left", header_style="bold", box=SIMPLE_HEAD)
    table.add_column("law")
    table.add_column("compared")
    table.add_column("checked", justify="right")
    table.add_column("broken", justify="right")
    held, subject, advice = True, None, list[str]()
    for finding in findings:
        held = held and finding.holds
        if finding.subject != subject:
            subject = finding.subject
            table.add_row(f"[dim]{subject}[/]")
        broken = f"[green]{finding.broken:,}[/]" if finding.holds else f"[bold red]{finding.broken:,}[/]"
        table.add_row(finding.law, finding.compared, f"{finding.checked:,}", broken)
        advice += [finding.advice] if finding.advice and not finding.holds else []
    table.caption = "[green]every law holds[/]" if held else "[bold red]a law is broken[/]"
    console.print(table)
    for text in advice:
        console.print(text, highlight=False, markup=False, soft_wrap=True)
    return held


def next_step(console: Console, command: str, why: str) -> None:
    """What to type next."""
    console.print(f"\nNext: [bold]{command}[/]  {why}", highlight=False)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bytes | bytearray):
        value = bytes(value).decode(errors="backslashreplace")
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    if isinstance(value, list):
        value = "; ".join(map(str, value))
    text = str(value).replace("[", "\\[")
    return text if len(text) <= _WIDEST else f"{text[:_WIDEST]}..."
