"""Sources: where payloads come from, with their origin."""

from streaming.sources.files import Files
from streaming.sources.generator import Generator, noise
from streaming.sources.kafka import CommittedOffsets, Kafka
from streaming.sources.offsets import OffsetReader, Offsets, OffsetSource
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
from streaming.sources.table import PlacedRows, Table, placed_rows

__all__ = [
    "CommittedOffsets",
    "Files",
    "Generator",
    "Kafka",
    "Memory",
    "OffsetReader",
    "OffsetSource",
    "Offsets",
    "PlacedRows",
    "Reading",
    "Source",
    "SourceBacklog",
    "SourceComparison",
    "Table",
    "Taken",
    "backlog_numbers",
    "by_unit",
    "largest_partitions",
    "noise",
    "placed_rows",
]
