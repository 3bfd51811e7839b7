"""Sources: where payloads come from, with their origin."""

from streaming.sources.files import Files
from streaming.sources.kafka import CommittedOffsets, Kafka
from streaming.sources.source import (
    Memory,
    Reading,
    Source,
    SourceBacklog,
    SourceComparison,
    Taken,
    backlog_numbers,
    by_unit,
    largest_partitions,
)

__all__ = [
    "CommittedOffsets",
    "Files",
    "Kafka",
    "Memory",
    "Reading",
    "Source",
    "SourceBacklog",
    "SourceComparison",
    "Taken",
    "backlog_numbers",
    "by_unit",
    "largest_partitions",
]
