"""A retraction's preview in words: for terminals line by line, and for Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from platform_assets.texts.repair import CHANGED, change_row, markdown_table
from streaming.base import told
from streaming.operations import RetractionPreview
from streaming.operators import Effect, words_of

MOST_LINES = 20
"""The lines of one effect that are shown."""


def heading_of(effect: Effect) -> str:
    """The line that says what would change of a table."""
    return f"{effect.table}: {effect.summary}"


def table_of(effect: Effect) -> tuple[tuple[str, ...], list[tuple[str, ...]], int]:
    """The heads and cells of what would change where, and how many lines there are besides."""
    if effect.windows is not None:
        shown = effect.windows[:MOST_LINES]
        return CHANGED, [change_row(each) for each in shown], len(effect.windows) - len(shown)
    heads = tuple(words_of(name) for name in effect.parts[0]) if effect.parts else ()
    parts = effect.parts[:MOST_LINES]
    return heads, [tuple(map(_cell, part.values())) for part in parts], effect.more + len(effect.parts) - len(parts)


def due_line(effect: Effect) -> str:
    """The sentence on the days that would wait for a correction; empty where none would."""
    days = ", ".join(map(str, effect.due or ()))
    return f"{effect.table}: first results stay, and are due for a correction: {days}" if days else ""


def follower_lines(preview: RetractionPreview, reports: tuple[str, ...]) -> Iterator[str]:
    """The lines on whom the changes reach further on, and on what cannot be told."""
    yield from (f"{name}: cannot be told: {why}" for name, why in preview.unknown.items())
    yield from map(str, preview.followers)
    yield from (f"report {name} reads what would change" for name in reports)


def as_markdown(preview: RetractionPreview, reports: tuple[str, ...] = ()) -> str:
    """The preview as Markdown: rows by day, what would change of each operator, and who follows."""
    lines = [f"**{preview.rows:,} rows** of {preview.stream}. Nothing was written."]
    if preview.days:
        days = [(f"{day}", f"{rows:,}") for day, rows in preview.days.items()]
        lines += ["", *markdown_table(("day", "rows"), days)]
    for effect in preview.effects:
        heads, cells, more = table_of(effect)
        lines += ["", f"### {heading_of(effect)}"]
        lines += ["", *markdown_table(heads, cells)] if cells else []
        lines += ["", f"... and {more:,} more."] if more else []
        if effect.due:
            lines += ["", f"{effect.table} would wait for a correction of {', '.join(map(str, effect.due))}."]
    further = list(follower_lines(preview, reports))
    return "\n".join([*lines, *([""] if further else []), *(f"- {line}" for line in further)])


def _cell(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return told(value) if value is None or isinstance(value, datetime) else str(value)
