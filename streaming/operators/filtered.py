"""What a business filter did: a row that it removes was judged and is not rejected."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FilterCounts:
    """`rows_in` came to the filter, `kept` went through; of a row that is exploded, each element comes to it."""

    rows_in: int = 0
    kept: int = 0

    @property
    def removed(self) -> int:
        """How many did not go through."""
        return self.rows_in - self.kept

    def __add__(self, other: FilterCounts) -> FilterCounts:
        return FilterCounts(self.rows_in + other.rows_in, self.kept + other.kept)
