"""Ranges of time, without Spark: where the rows of a file lie, and what may be left out because of it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streaming.tables import at_most, have_common, occupied, storage
from streaming.tables.time_ranges import TimeRange
from tests.support.instants import at

SECOND = timedelta(seconds=1)


def whole(first: int, last: int) -> TimeRange:
    """The whole seconds from one to another, both included."""
    return at(first), at(last + 1) - timedelta(microseconds=1)


def test_one_late_row_makes_a_range_of_its_own_and_batches_can_be_told_apart(tmp_path: Path) -> None:
    times = [at(3_600), at(3_601.5), at(5), None, at(9)]
    rows = pa.table({"at": pa.array(times, pa.timestamp("us", "UTC")), "_batch": pa.array([3, 3, 3, 3, 4], pa.int64())})
    pq.write_table(rows, tmp_path / "rows.parquet")
    files = storage.below(str(tmp_path))
    assert occupied(files, "rows.parquet", "at", SECOND) == [whole(5, 5), whole(9, 9), whole(3_600, 3_601)]
    assert occupied(files, "rows.parquet", "at", SECOND, (2, 3)) == [whole(5, 5), whole(3_600, 3_601)]
    assert occupied(files, "rows.parquet", "at", SECOND, (4, 9)) == []


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (9, [whole(0, 1), whole(5, 6), whole(8, 9), whole(20, 21)]),
        (3, [whole(0, 1), whole(5, 9), whole(20, 21)]),
        (2, [whole(0, 9), whole(20, 21)]),
        (1, [whole(0, 21)]),
    ],
)
def test_where_ranges_are_too_many_the_shortest_gaps_are_closed(number: int, expected: list[TimeRange]) -> None:
    assert at_most([whole(0, 1), whole(5, 6), whole(8, 9), whole(20, 21)], number) == expected
    assert at_most([], number) == []


def test_what_lies_in_a_gap_has_nothing_in_common_with_the_ranges_beside_it() -> None:
    of_a_file = (whole(5, 5), whole(3_600, 3_601))
    assert not have_common([whole(6, 3_599)], of_a_file)
    assert have_common([whole(0, 2), whole(3_601, 3_601)], of_a_file)
