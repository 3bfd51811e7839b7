"""The index of a table's files: what it names holds every row that is asked for, and new commits keep it so."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from streaming.tables import file_index
from streaming.tables.file_index import FileIndex

T0 = datetime(2026, 1, 1, tzinfo=UTC)
MICRO = timedelta(microseconds=1)
SCHEMA = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("_batch", pa.int64()), ("_day", pa.date32())])
NEWEST = 1_000


def append(uri: str, batch: int, *seconds: float, dated: bool = True) -> None:
    """One file with rows of a batch at these seconds of the first day, or without a day."""
    times = [T0 + timedelta(seconds=second) for second in seconds]
    days = [time.date() if dated else None for time in times]
    rows = pa.table({"at": times, "_batch": [batch] * len(times), "_day": days}, SCHEMA)
    write_deltalake(uri, rows, mode="append", partition_by=["_day"])


def rows(uri: str, paths: Iterable[str]) -> set[tuple[datetime, int]]:
    """What is in these files."""
    files = (pq.read_table(f"{uri}/{path}", columns=["at", "_batch"]).to_pylist() for path in paths)
    return {(row["at"], row["_batch"]) for file in files for row in file}


def everything_told(index: FileIndex) -> dict[str, object]:
    """What an index says of all files."""
    index.refresh()
    dated, undated = index.with_batches(-1, NEWEST), index.with_batches(-1, NEWEST, dated=False)
    return {
        path: (path in dated, index.size(path), index.rows([path]), index.first_batch([path], NEWEST))
        for path in (*dated, *undated)
    }


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "table")


def test_files_are_found_by_times_batches_and_ranges(uri: str) -> None:
    append(uri, 0, 1, 5)
    append(uri, 1, 4, 9)
    append(uri, 2, 86_400)
    append(uri, 3, 2, dated=False)
    index = FileIndex(uri, "at")
    index.refresh()

    def at(second: float) -> datetime:
        return T0 + timedelta(seconds=second)

    assert rows(uri, index.with_times(at(6), at(20), NEWEST)) == {(at(4), 1), (at(9), 1)}
    assert rows(uri, index.with_times(at(0), at(4), 0)) == {(at(1), 0), (at(5), 0)}
    assert rows(uri, index.with_batches(0, 2)) == {(at(4), 1), (at(9), 1), (at(86_400), 2)}
    assert rows(uri, index.with_batches(0, 3, dated=False)) == {(at(2), 3)}
    assert index.with_batches(2, 3) == []
    assert rows(uri, index.with_ranges([(at(7), at(8)), (at(86_400), at(90_000))], -1, NEWEST)) == {
        (at(4), 1),
        (at(9), 1),
        (at(86_400), 2),
    }
    assert index.rows(index.with_batches(-1, NEWEST)) == 5


def forget_statistics(uri: str, version: int) -> None:
    """As of a writer that keeps none."""
    commit = Path(uri, "_delta_log", f"{version:020}.json")
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    for action in actions:
        action.get("add", {}).pop("stats", None)
    commit.write_text("\n".join(map(json.dumps, actions)))


def test_a_file_without_statistics_may_have_any_row(uri: str) -> None:
    append(uri, 2, 0)
    followed = FileIndex(uri, "at")
    followed.refresh()
    append(uri, 3, 1, 5)
    forget_statistics(uri, 1)
    for index in (followed, FileIndex(uri, "at")):
        index.refresh()
        (path,) = index.with_times(T0 + timedelta(hours=3), T0 + timedelta(hours=4), 0)
        assert rows(uri, [path]) == {(T0 + timedelta(seconds=second), 3) for second in (1, 5)}
        assert index.with_batches(500, NEWEST) == [path]
        assert index.with_ranges([(T0 + timedelta(hours=1), T0 + timedelta(hours=1))], 500, NEWEST) == [path]
        assert not index.has_only(path, -1, NEWEST)
        assert index.rows([path]) is None


def test_a_row_just_above_a_bound_that_was_cut_off_at_the_millisecond_is_found(uri: str) -> None:
    """Whoever wrote the statistics may have left out the microseconds."""
    append(uri, 0, 0.000001, 5.000999)
    (commit,) = Path(uri, "_delta_log").glob("*.json")
    commit.write_text(commit.read_text().replace("05.000999", "05.000"))
    index = FileIndex(uri, "at")
    index.refresh()
    newest = T0 + timedelta(seconds=5, microseconds=999)
    assert len(index.with_times(newest, newest + MICRO, NEWEST)) == 1
    assert len(index.with_times(newest + timedelta(milliseconds=2), newest + timedelta(hours=1), NEWEST)) == 0


def test_an_index_that_follows_new_commits_says_what_a_new_one_says(uri: str) -> None:
    """Files come, are compacted, are replaced, and whole days go."""
    append(uri, 0, 1)
    index = FileIndex(uri, "at")
    index.refresh()
    read = []

    def five_more() -> None:
        for batch in range(1, 6):
            append(uri, batch, batch, batch + 90_000 * (batch % 2))

    for step in (
        five_more,
        lambda: append(uri, 6, 3, dated=False),
        lambda: DeltaTable(uri).optimize.compact(),
        lambda: append(uri, 7, 86_400 * 3),
        lambda: DeltaTable(uri).delete(f"_day = '{date(2026, 1, 2)}'"),
    ):
        step()
        assert everything_told(index) == everything_told(FileIndex(uri, "at")) != {}
        read.append(len(everything_told(index)))
    assert len(set(read)) > 2


def test_an_index_whose_commits_were_cleaned_away_meanwhile_is_read_anew(uri: str) -> None:
    append(uri, 0, 1)
    index = FileIndex(uri, "at")
    index.refresh()
    for batch in range(1, 4):
        append(uri, batch, batch)
    DeltaTable(uri).optimize.compact()
    table = DeltaTable(uri)
    table.create_checkpoint()
    for entry in Path(uri, "_delta_log").glob("*.json"):
        if int(entry.stem) < table.version():
            entry.unlink()
    assert everything_told(index) == everything_told(FileIndex(uri, "at"))
    landed = {(T0 + timedelta(seconds=max(batch, 1)), batch) for batch in range(4)}
    assert rows(uri, index.with_batches(-1, NEWEST)) == landed


def test_an_index_that_could_not_read_an_entry_knows_all_files_by_its_next_look(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(uri, 0, 1)
    index = FileIndex(uri, "at")
    index.refresh()
    for batch in (1, 2):
        append(uri, batch, batch)
    read, failing = file_index.actions_of, [2]

    def once_away(table: DeltaTable, version: int) -> Any:
        if version in failing:
            failing.remove(version)
            raise OSError("the store is away")
        return read(table, version)

    monkeypatch.setattr(file_index, "actions_of", once_away)
    with pytest.raises(OSError, match="away"):
        index.refresh()
    append(uri, 3, 3)
    assert everything_told(index).keys() == everything_told(FileIndex(uri, "at")).keys()
    assert len(everything_told(index)) == 4
