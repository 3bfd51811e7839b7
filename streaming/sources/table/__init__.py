"""Delta tables as sources: another stream's log, what an operator writes, or any other."""

from streaming.sources.table.placed import PlacedRows, check_has_side, placed_rows
from streaming.sources.table.source import Table
