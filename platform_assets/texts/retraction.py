"""A retraction's preview in words, for Markdown."""

from __future__ import annotations

from platform_assets.texts.repair import windows_as_markdown
from streaming.operations import RetractionPreview


def as_markdown(preview: RetractionPreview) -> str:
    """The preview as Markdown: rows by day, then the first windows of each view that would change."""
    lines = [f"**{preview.rows:,} rows** of {preview.stream}. Nothing was written."]
    if preview.days:
        days = [f"| {day} | {rows:,} |" for day, rows in preview.days.items()]
        lines += ["", "| day | rows |", "|---|---|", *days]
    for view, days_due in preview.due.items():
        if days_due:
            lines += ["", f"{view} would wait for a correction of {', '.join(map(str, days_due))}."]
    return "\n".join([*lines, *windows_as_markdown(preview.changes)])
