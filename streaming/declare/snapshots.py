"""The declaration of a stream that is told by whole extracts of a table, one a batch."""

from __future__ import annotations

from dataclasses import dataclass

from streaming.base import DeclarationError, settle


@dataclass(frozen=True)
class Snapshots:
    """Each batch of the stream is a whole extract of a table: what it has is what stands.

    A row that is new, or has other values than the one that stands, is a revision; a key that is not in it is gone. An
    extract in which more than the share `at_most_gone` of the keys that stand would be gone is refused as a whole, as
    one that is empty or was cut off would be: its rows stay in the log, nothing else changes, and the next one counts.
    One with rejected rows takes no key for gone.

    `taken_at` is a SQL expression for the time at which an extract was taken, over the columns and `_origin`, such as
    `exported_at`, or `_origin.modified` of files: the greatest in an extract counts. A `History` is told by it when
    rows were new, changed or gone; without it that is when the extract came. Columns in it are no values of a row: one
    that differs in these alone is as it was.

    Raises:
        DeclarationError: the share is not between 0 and 1.
    """

    at_most_gone: float = 0.2
    taken_at: str | None = None

    def __post_init__(self) -> None:
        settle(self, "Snapshots")
        if not 0 <= self.at_most_gone <= 1:
            raise DeclarationError(
                f"at_most_gone={self.at_most_gone!r} of Snapshots is no share",
                "write a number from 0 to 1, such as 0.2 for a fifth.",
                field="at_most_gone",
                value=self.at_most_gone,
            )
