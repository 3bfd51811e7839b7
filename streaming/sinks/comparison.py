"""Rows that should be in a target against those that are, by checksums that do not depend on their order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Self

_BYTES = 8
_MODULUS = 2 ** (8 * _BYTES)
_NAMED = 5


@dataclass
class Checksum:
    """The number of records, and the sum of their BLAKE2b digests of 64 bits, modulo 2^64.

    A sum, not an exclusive or, so that a record that is there twice does not vanish.
    """

    records: int = 0
    total: int = 0

    def add(self, records: Iterable[bytes]) -> None:
        """Take records in."""
        for record in records:
            digest = blake2b(record, digest_size=_BYTES).digest()
            self.records += 1
            self.total = (self.total + int.from_bytes(digest)) % _MODULUS

    @staticmethod
    def by_name() -> defaultdict[str, Checksum]:
        """Checksums of parts, each of which begins empty."""
        return defaultdict(Checksum)


@dataclass(frozen=True)
class Comparison:
    """The number of records compared, and of the units that differ; `unit`: the words for one and for several.

    Some of those that differ are `named`.
    """

    records: int
    differing: int
    unit: tuple[str, str]
    named: tuple[str, ...] = field(default=())

    @classmethod
    def of_folders(cls, should: Mapping[str, Checksum], there: Mapping[str, Checksum]) -> Self:
        """The folders whose checksums differ; none where all rows are there, in other folders of an older layout."""
        if _sum(should) == _sum(there):
            return cls(_sum(should).records, 0, ("folder", "folders"))
        nothing = Checksum()
        names = sorted({*should, *there})
        differ = [name for name in names if should.get(name, nothing) != there.get(name, nothing)]
        return cls(
            _sum(should).records, len(differ), ("folder", "folders"), tuple(name for name in differ[:_NAMED] if name)
        )


def _sum(parts: Mapping[str, Checksum]) -> Checksum:
    records = sum(part.records for part in parts.values())
    return Checksum(records, sum(part.total for part in parts.values()) % _MODULUS)
