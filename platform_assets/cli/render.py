"""Frames, findings and reports as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from streaming.base import Reading, counted, instant_of, is_number_type, python_values, shown

if TYPE_CHECKING:
    from streaming.operators import Finding

_WIDEST, _WIDEST_IN_BLOCK = 60, 2_000
_ROWS, _BLOCKS = 20, 5
_HOLDS, _BROKEN = "green", "bold red"
_IN_UTC = Reading(instant=instant_of)


def rows_to_print(limit: int | None) -> int:
    """The number of rows of which `print_first` has to know, so that it can say whether there are more."""
    return (limit or _ROWS) + 1


def print_first(
    console: Console, rows: pa.Table, title: str, limit: int | None, *, chooses_columns: bool = True
) -> None:
    """The first of `rows`, and whether there are more: `limit`, or as many as can be taken in at a glance.

    `chooses_columns`: the command has `--columns`, which makes a table of what fits.
    """
    table = _table(title, rows.slice(0, limit or _ROWS))
    if not rows.num_rows:
        console.print(f"{title}: no rows", soft_wrap=True)
        return
    if _fits(console, table):
        shown = limit or _ROWS
        console.print(table)
    else:
        shown = limit or _BLOCKS
        _print_blocks(console, title, rows.slice(0, shown))
        if chooses_columns and (fitting := _fitting(console, rows)):
            names = ",".join(rows.column_names[place] for place in fitting)
            text = f"--columns {names} makes a table of what fits."
            console.print(text, soft_wrap=True)
    if rows.num_rows > shown:
        console.print(f"... and more; --limit {shown * 10} shows more of them.")


def print_table(console: Console, rows: pa.Table, title: str) -> None:
    """All rows of a report's section, with as many of its columns as the terminal has room for."""
    shown = _fitting(console, rows)
    if not shown:
        _print_blocks(console, title, rows)
        return
    console.print(_table(title, rows.select(shown)))
    hidden = [name for place, name in enumerate(rows.column_names) if place not in shown]
    if hidden:
        text = f"Wider than the terminal; its files also have {', '.join(hidden)}."
        console.print(text)


def _table(title: str, rows: pa.Table) -> Table:
    table = Table(title=Text(title), title_justify="left", header_style="bold", box=SIMPLE_HEAD)
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        table.add_column(Text(name), justify="right" if is_number_type(column.type) else "left", overflow="fold")
    for row in _values(rows):
        table.add_row(*(Text(_text(value, _WIDEST)) for value in row))
    return table


def _fits(console: Console, table: Table) -> bool:
    return Measurement.get(console, console.options.update(width=10_000), table).maximum <= console.width


def _fitting(console: Console, rows: pa.Table) -> list[int]:
    """The places of as many columns, from the first on, as a table on the terminal has room for."""
    fitting: list[int] = []
    for place in range(rows.num_columns):
        if _fits(console, _table("", rows.select([*fitting, place]))):
            fitting.append(place)
    return fitting


def _print_blocks(console: Console, title: str, rows: pa.Table) -> None:
    """Each row as a block of lines, `name  value`."""
    console.print(Text(title, "italic"))
    for number, row in enumerate(_values(rows), 1):
        console.rule(f"row {number}", align="left", style="dim")
        block = Table.grid(padding=(0, 2))
        block.add_column(style="bold", no_wrap=True)
        block.add_column(overflow="fold")
        for name, value in zip(rows.column_names, row, strict=True):
            block.add_row(Text(name), Text(_text(value, _WIDEST_IN_BLOCK)))
        console.print(block)


def _values(rows: pa.Table) -> Iterable[tuple[Any, ...]]:
    # Not as dictionaries: a name may be there twice.
    return zip(*(python_values(column, _IN_UTC) for column in rows.columns), strict=True)


def print_rows(console: Console, title: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Rows of text under their heads; without a title where that is empty."""
    table = Table(title=Text(title) if title else None, title_justify="left", header_style="bold", box=SIMPLE_HEAD)
    for head in heads:
        table.add_column(Text(head), overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)


def print_findings(console: Console, findings: Iterable[Finding]) -> bool:
    """The audit, law by law; returns whether every law holds."""
    table = Table(
        title="Audit",
        title_justify="left",
        header_style="bold",
        box=SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        collapse_padding=True,
    )
    table.add_column("law")
    table.add_column("compared")
    table.add_column("checked", justify="right")
    table.add_column("broken", justify="right")
    held, subject, advice, waiting, unasked = True, None, list[str](), 0, 0
    for finding in findings:
        held, waiting = held and finding.holds, waiting + finding.waiting
        unasked += bool(finding.unasked)
        if finding.subject != subject:
            subject = finding.subject
            table.add_row(Text(subject, "dim"))
        broken = Text(f"{finding.broken:,}", _HOLDS if finding.holds else _BROKEN)
        table.add_row(finding.law, finding.compared, f"{finding.checked:,}", broken)
        advice += [finding.advice] if finding.advice and not finding.holds else []
    more = f", and {counted(waiting, 'row')} still to be delivered" if waiting else ""
    if not held:
        table.caption = Text(f"a law is broken{more}", _BROKEN)
    elif unasked:
        # What could not be asked does not hold for that.
        table.caption = Text(f"no law is broken, but {unasked} could not be asked{more}", _BROKEN)
    else:
        table.caption = Text(f"every law holds{more}", _HOLDS)
    console.print(table)
    for text in advice:
        console.print(text, soft_wrap=True)
    return held


def changed(before: str, after: str) -> Text:
    """A value of a cell beside the one `before`, which is dim."""
    return Text.assemble((f"{before} ->", "dim"), f" {after}")


def next_step(console: Console, command: str, why: str) -> None:
    """Print the command to type next, and why; what a shell would take apart is quoted in it."""
    console.print(Text.assemble("\nNext: ", (command, "bold"), f"  {why}"))


def _text(value: Any, widest: int) -> str:
    text = shown(_whole_text(value))
    return text if len(text) <= widest else f"{text[:widest]}..."


def _whole_text(value: Any) -> str:
    match value:
        case None:
            return ""
        case bytes():
            return value.decode(errors="backslashreplace")
        case float():
            # A small number is none, rounded so.
            return f"{value:.3f}" if value == 0 or abs(value) >= 0.001 else f"{value:.3g}"
        case datetime():
            return f"{value:%Y-%m-%d %H:%M:%S}"
        case dict():
            return ", ".join(f"{name}={_whole_text(part)}" for name, part in value.items() if part is not None)
        case tuple():
            return "=".join(map(_whole_text, value))
        case list():
            return "; ".join(map(_whole_text, value))
    return str(value)
