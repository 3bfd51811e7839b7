"""The outcome of maintenance, in words."""

from __future__ import annotations

from streaming.operations import Maintained


def told(entry: Maintained) -> str:
    """One line on what was done to a table."""
    removed = f"{entry.files_removed:,} old files and {entry.entries_removed:,} log entries removed"
    return (
        f"{entry.table}: {entry.files_before:,} files of {entry.bytes_before:,} bytes are {entry.files_after:,} of "
        f"{entry.bytes_after:,}; {removed}"
    )
