"""Sources in Python: whoever can tell how far its partitions reach, and read them between two offsets, is a source."""

from streaming.sources.offsets.reader import OffsetReader, Offsets
from streaming.sources.offsets.source import OFFSETS, OffsetSource
