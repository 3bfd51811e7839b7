"""The buckets of a keyed function's state: ranges of a hash of the key, all of the same width.

A step reads and writes the buckets that have rows or timers that are due, and no other. How many there are follows from
how much state there is, and is nobody's choice: another number is another layout of the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

_BITS = 64
_FEWEST, _MOST = 4, 512
KEYS_PER_BUCKET = 32_768
BYTES_PER_BUCKET = 4 * 2**20
"""The target size of a bucket: one that is small costs a file, one that is large is read for a single key."""


@dataclass(frozen=True)
class Buckets:
    """So many buckets, a power of two from 2 on, in the order of the hashes."""

    count: int

    @classmethod
    def of_size(cls, keys: int, size: int, count: int | None = None) -> Buckets:
        """Enough for so many keys and bytes; those there are, `count`, stay while they are not four times too many."""
        wanted = max(-(-keys // KEYS_PER_BUCKET), -(-size // BYTES_PER_BUCKET), _FEWEST)
        fitting = min(1 << (wanted - 1).bit_length(), _MOST)
        return cls(count if count is not None and fitting <= count <= 4 * fitting else fitting)

    @property
    def shift(self) -> int:
        """The bits of a hash below those that tell its bucket."""
        return _BITS - (self.count.bit_length() - 1)

    def of(self, hashes: Any) -> Any:
        """The bucket of a hash, or of each in an array."""
        return (hashes >> self.shift) + self.count // 2

    def first_hash(self, bucket: int) -> int:
        """The least hash that is in a bucket."""
        return (bucket - self.count // 2) << self.shift
