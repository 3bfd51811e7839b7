"""What a join must tell, in plain Python: every row against every other one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random

from tests.support.instants import at

DELAY = timedelta(seconds=10)


@dataclass(frozen=True)
class Row:
    """A row of a log, with the watermark that was in force when its batch was read; null before there was one."""

    n: int
    key: str | None
    at: datetime
    stamp: datetime | None = None


def log_of(batches: Sequence[Sequence[Row]]) -> tuple[list[Row], datetime | None]:
    """The rows with their stamps, and the watermark after the last batch."""
    rows: list[Row] = []
    mark: datetime | None = None
    for batch in batches:
        rows += [Row(row.n, row.key, row.at, mark) for row in batch]
        latest = max(row.at for row in batch)
        # Watermarks are whole milliseconds.
        reached = latest.replace(microsecond=latest.microsecond // 1000 * 1000) - DELAY
        mark = reached if mark is None else max(mark, reached)
    return rows, mark


def pairs(
    left: Sequence[Row],
    right: Sequence[Row],
    lower: timedelta,
    upper: timedelta,
    where: Callable[[Row, Row], bool] = lambda one, other: True,
) -> set[tuple[Row, Row]]:
    return {
        (one, other)
        for one in left
        for other in right
        if one.key is not None and one.key == other.key and lower <= other.at - one.at <= upper and where(one, other)
    }


def unmatched(
    rows: Sequence[Row], partners: Callable[[Row], set[Row]], reach: timedelta, clock: datetime
) -> tuple[set[Row], set[Row]]:
    """Rows that were told of alone, and of these the ones that are alone still."""
    due = [row for row in rows if row.at + reach < clock]
    unmatched_rows = {
        row for row in due if all(other.stamp is not None and other.stamp > row.at + reach for other in partners(row))
    }
    return unmatched_rows, {row for row in due if not partners(row)}


def drawn(random: Random, batches: int, first: int) -> Iterator[list[Row]]:
    """Batches in disorder: rows near a moving present, some on the edges of others' bounds, some far too late."""
    number = first
    for batch in range(batches):
        rows = []
        for _ in range(random.randint(3, 6)):
            seconds: float = batch * 20 + random.choice((0, 5, 10, 15, 20, 30))
            seconds += random.choice((0, 0, 0, 0, 0.001, -0.001, 0.000001, -60, -60, -86_400))
            rows.append(Row(number, random.choice(("a", "a", "b", None)), at(seconds)))
            number += 1
        yield rows
