"""Sources: where payloads come from, with their origin."""

from streaming.sources.files import Files, vanished
from streaming.sources.source import Source, SourceBacklog, SourceComparison, backlog_numbers, by_unit

__all__ = [
    "Files",
    "Source",
    "SourceBacklog",
    "SourceComparison",
    "backlog_numbers",
    "by_unit",
    "vanished",
]
