"""A repair's preview in words: one line per changed window, for terminals and for Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from streaming.operations import Preview
from streaming.operators import ChangedWindow

CHANGED = ("key", "window", "rows added", "before -> after")
_MOST_WINDOWS = 50


def change_row(change: ChangedWindow) -> tuple[str, str, str, str]:
    """The cells of one changed window, under the heads `CHANGED`; aggregates that stay the same are left out."""
    names = list((change.after or change.before or {}).keys())
    values = [(name, (change.before or {}).get(name), (change.after or {}).get(name)) for name in names]
    different = [
        f"{name} {_text(before)} -> {_text(after)}" for name, before, after in values if _text(before) != _text(after)
    ]
    return (
        ", ".join(map(_text, change.key)) or "all",
        f"{_text(change.start)} to {_text(change.end)}",
        f"{change.rows_added:,}",
        "; ".join(different) or "no aggregate changes",
    )


def kept_back_text(rows: int) -> str:
    """The sentence on rejected rows that no repair brings back, with a space before it; empty where there is none."""
    if not rows:
        return ""
    return f" {rows:,} of them cannot be judged, as what is needed for that is masked: send these again."


def as_markdown(preview: Preview) -> str:
    """The preview as Markdown: the counts, then the first windows of each view that would change."""
    lines = [
        f"{preview.examined:,} rejected rows: **{preview.repaired:,} would pass**, "
        f"{preview.examined - preview.repaired:,} would stay rejected.{kept_back_text(preview.kept_back)} "
        "Nothing was written."
    ]
    return "\n".join([*lines, *windows_as_markdown(preview.changes)])


def windows_as_markdown(changes_of: Mapping[str, Sequence[ChangedWindow]]) -> list[str]:
    """The lines of Markdown with the first windows of each view that would change."""
    lines: list[str] = []
    for view, changes in changes_of.items():
        lines += ["", f"### {view}: {len(changes):,} windows would change"]
        if changes:
            lines += ["", *markdown_table(CHANGED, map(change_row, changes[:_MOST_WINDOWS]))]
        if len(changes) > _MOST_WINDOWS:
            lines += ["", f"... and {len(changes) - _MOST_WINDOWS:,} more."]
    return lines


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table of Markdown."""
    escaped = (" | ".join(cell.replace("|", "\\|") for cell in row) for row in rows)
    return [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}", *(f"| {row} |" for row in escaped)]


def _text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
