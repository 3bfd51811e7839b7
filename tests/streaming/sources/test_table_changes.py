"""What changes in a Delta table from one version to another, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from streaming.base.errors import DeclarationError, SourceError
from streaming.sources.table import Table
from streaming.sources.table.changes import ChangeReader
from streaming.sources.table.source import source_table

Rows = list[tuple[str | None, int | None]]


def write(uri: str, rows: Rows, mode: Any = "overwrite") -> None:
    ids, values = [each[0] for each in rows], [each[1] for each in rows]
    write_deltalake(uri, pa.table({"id": pa.array(ids, pa.string()), "value": pa.array(values, pa.int64())}), mode=mode)


def reader_of(uri: str) -> ChangeReader:
    reader = source_table(uri, None, {}, changes_by=("id",)).reader(1)
    assert isinstance(reader, ChangeReader)
    return reader


class Following:
    """Takes batch after batch of a table."""

    def __init__(self, uri: str) -> None:
        self.reader = reader_of(uri)
        self._at = self.reader.first()

    def batch(self) -> list[tuple[int, str | None, int | None, bool]]:
        """Version, row, and whether it was removed, of what changed since."""
        begins, self._at = self._at, self.reader.newest(self._at)
        changes = [row for piece in self.reader.pieces(begins, self._at) for row in self._rows(piece)]
        assert [row for piece in self.reader.pieces(begins, self._at) for row in self._rows(piece)] == changes
        return changes

    def _rows(self, piece: Any) -> list[tuple[int, str | None, int | None, bool]]:
        rows = [row for batch in self.reader.read(piece) for row in batch.to_pylist()]
        assert [row["position"] for row in rows] == list(range(len(rows)))
        return [(row["unit"], *row["payload"].values()) for row in rows]


def test_a_batch_has_rows_that_are_new_or_others_and_those_that_are_gone(tmp_path: Path) -> None:
    uri = str(tmp_path / "rooms")
    write(uri, [("b", 2), ("a", 1), (None, 0)])
    table = Following(uri)
    assert table.batch() == [(0, None, 0, False), (0, "a", 1, False), (0, "b", 2, False)]
    assert table.batch() == []
    write(uri, [("a", 7), ("b", 2)])
    write(uri, [("a", 8), ("b", 2), ("c", None)])
    assert table.batch() == [(2, "a", 8, False), (2, "c", None, False), (2, None, 0, True)]
    DeltaTable(uri).delete("id = 'b'")
    assert table.batch() == [(3, "b", 2, True)]
    DeltaTable(uri).delete()
    assert table.batch() == [(4, "a", 8, True), (4, "c", None, True)]


def test_compaction_and_clean_up_bring_no_row_and_lose_none(tmp_path: Path) -> None:
    uri = str(tmp_path / "rooms")
    write(uri, [("a", 1)])
    write(uri, [("b", 2)], mode="append")
    table = Following(uri)
    assert len(table.batch()) == 2
    DeltaTable(uri).optimize.compact()
    assert table.batch() == []
    DeltaTable(uri).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    write(uri, [("c", 3)], mode="append")
    assert [row[1:] for row in table.batch()] == [("c", 3, False)]


def test_a_table_that_nothing_changes_in_is_followed_for_longer_than_it_keeps_its_history(tmp_path: Path) -> None:
    uri = str(tmp_path / "rooms")
    write(uri, [("a", 1)])
    table = Following(uri)
    assert len(table.batch()) == 1
    for month in range(3):
        DeltaTable(uri).alter.set_table_properties({"month": str(month)}, raise_if_not_exists=False)
        assert table.batch() == []
        DeltaTable(uri).create_checkpoint()
        for entry in (tmp_path / "rooms" / "_delta_log").glob("*.json"):
            if int(entry.stem) <= month:
                entry.unlink()
        assert table.batch() == []
    write(uri, [("b", 3)], mode="append")
    assert table.batch() == [(4, "b", 3, False)]


def test_a_nan_that_stays_one_is_no_change_and_may_be_a_key(tmp_path: Path) -> None:
    uri, nan = str(tmp_path / "rates"), float("nan")
    types = pa.schema([("id", pa.float64()), ("v", pa.list_(pa.float64())), ("m", pa.map_(pa.string(), pa.float64()))])
    one, two = {"id": nan, "v": [nan, None], "m": [("k", nan)]}, {"id": 2.0, "v": [nan], "m": None}
    zero = {"id": -0.0, "v": [1.0], "m": []}
    for rows in ([one, two, zero], [zero | {"id": 0.0}, two, one], [one, two | {"v": [nan, nan]}, zero]):
        write_deltalake(uri, pa.Table.from_pylist(rows, types), mode="overwrite")
    reader = reader_of(uri)

    def changes(piece: tuple[int, int]) -> str:
        rows = (row["payload"] for batch in reader.read(piece) for row in batch.to_pylist())
        return repr([(row["id"], row["v"], row["m"], row["removed"]) for row in rows])

    assert changes((-1, 0)) == (
        "[(-0.0, [1.0], [], False), (2.0, [nan], None, False), (nan, [nan, None], [('k', nan)], False)]"
    )
    assert changes((0, 1)) == "[]"
    assert changes((1, 2)) == "[(2.0, [nan, nan], None, False)]"


def test_a_version_that_is_gone_before_its_changes_were_taken_is_told(tmp_path: Path) -> None:
    uri = str(tmp_path / "rooms")
    write(uri, [("a", 1)])
    table = Following(uri)
    table.batch()
    write(uri, [("a", 2)])
    DeltaTable(uri).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    with pytest.raises(SourceError, match=r"^version 0 of the table .* cannot be read any more: .* away for longer"):
        table.batch()


def test_a_key_that_repeats_is_told_with_its_version(tmp_path: Path) -> None:
    uri = str(tmp_path / "rooms")
    write(uri, [("a", 1), ("a", 2)])
    with pytest.raises(SourceError, match=r"version 0 of .* has several rows with id = \('a',\)"):
        Following(uri).batch()


def test_a_table_without_the_key_or_with_a_column_of_that_name_is_refused(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "a"), pa.table({"name": ["x"]}))
    with pytest.raises(SourceError, match=r"by its changes by id: its columns are name\. It must have those"):
        reader_of(str(tmp_path / "a"))
    write_deltalake(str(tmp_path / "b"), pa.table({"id": ["x"], "removed": [True]}))
    with pytest.raises(SourceError, match=r"none called 'removed'"):
        reader_of(str(tmp_path / "b"))
    with pytest.raises(DeclarationError, match=r"changes_by=\('id',\) is for the path of a Delta table"):
        Table(str(tmp_path / "a"), start_version=0, changes_by=("id",))
