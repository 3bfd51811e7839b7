"""Rows are looked up by keys of any types: those are found that are written as the key is, and no other."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow import fs

from streaming.tables import delta, matching
from streaming.tables.bounds import spans_listed
from streaming.tables.matching import DataFile, Keys, rows_among

NAN_OF_OTHER_BITS = struct.unpack("<d", bytes.fromhex("000000000000f8ff"))[0]
"""What a square root of -1 is."""
VALUES: dict[str, tuple[pa.DataType, Sequence[Any]]] = {
    "whole": (pa.int32(), (None, 0, 1, -1)),
    "text": (pa.string(), (None, "", "a", "A", "None")),
    "money": (pa.decimal128(9, 2), (None, Decimal("0.00"), Decimal("1.10"))),
    "share": (pa.float32(), (None, 0.0, -0.0, math.nan, 1.5)),
    "sum": (pa.float64(), (None, 0.0, -0.0, math.nan, NAN_OF_OTHER_BITS, 1.5)),
    "small": (pa.uint8(), (None, 0, 1, 255)),
    "large": (pa.uint64(), (None, 0, 2**64 - 1)),
    "at": (pa.timestamp("us", "UTC"), (None, datetime(2026, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC))),
    "day": (pa.date32(), (None, date(1, 1, 1), date(2026, 1, 1))),
    "is": (pa.bool_(), (None, True, False)),
    "bytes": (pa.binary(), (None, b"", b"\xff")),
    "parts": (pa.list_(pa.int8()), (None, [], [None], [1])),
    "place": (pa.struct([("x", pa.float64())]), (None, {"x": None}, {"x": 0.0}, {"x": -0.0}, {"x": math.nan})),
}


def drawn(chance: random.Random, names: Sequence[str], number: int) -> pa.Table:
    columns = {name: pa.array(chance.choices(VALUES[name][1], k=number), VALUES[name][0]) for name in names}
    return pa.table(columns)


def texts(rows: pa.Table) -> list[str]:
    return [repr(tuple(row.values())) for row in rows.to_pylist()]


@pytest.mark.parametrize("seed", range(60))
def test_rows_of_just_these_keys_are_found(seed: int) -> None:
    chance = random.Random(seed)
    names = chance.sample([*VALUES], chance.randint(1, 4))
    keys, rows = drawn(chance, names, chance.randrange(12)), drawn(chance, [*VALUES], 300)
    wanted = {*texts(keys)}
    (batch,) = rows.combine_chunks().slice(7).to_batches()
    assert Keys(keys).are_of(batch).tolist() == [text in wanted for text in texts(rows.select(names).slice(7))]


LONG = "the first thirty-two characters: "
INSTANT = datetime(2026, 1, 1, tzinfo=UTC)
SPREAD: dict[str, tuple[pa.DataType, Sequence[Any]]] = {
    "number": (pa.int64(), (None, -(2**63), -1, 0, 1, 2**53, 2**53 + 1, 2**63 - 1)),
    "text": (
        pa.string(),
        (None, "", "a", "é", "\ufffd", "\uffff", "\U0001f30a", LONG, f"{LONG}é", f"{LONG}\U0001f30a", f"{LONG}z" * 3),
    ),
    "at": (
        pa.timestamp("us", "UTC"),
        (None, datetime(1, 1, 1, tzinfo=UTC), *(INSTANT + timedelta(microseconds=n) for n in (-1, 0, 1, 999, 1000))),
    ),
    "day": (pa.date32(), (None, date(1, 1, 1), date(1969, 12, 31), date(2026, 1, 1), date(9999, 12, 31))),
    "sum": (pa.float64(), (None, 0.0, -0.0, math.nan, -math.inf, 1.5)),
    "parts": (pa.list_(pa.int64()), (None, [], [None], [1])),
    "money": (pa.decimal128(20, 2), (None, Decimal("0.10"), Decimal("100000000000000000.01"))),
}


def spread(chance: random.Random, names: Sequence[str], number: int) -> pa.Table:
    """Rows whose values are near each other, or all null, so that bounds leave out much."""
    columns = dict[str, pa.Array]()
    for name in names:
        type_, values = SPREAD[name]
        begins = chance.randrange(len(values))
        few = chance.choice([values[begins : begins + 2], values[1:], [None]])
        columns[name] = pa.array(chance.choices(few, k=number), type_)
    return pa.table(columns)


def kept_by_spark(rows: pa.Table) -> pa.Table:
    """The statistics of a file as Spark's Delta writes them, in the form of `files_added`.

    Instants are cut off at the millisecond. Texts have 32 characters, and one after all others at the end of the
    greatest.
    """
    kept: dict[str, Any] = {"num_records": [rows.num_rows]}
    for name in ("number", "text", "at", "day"):
        if name not in rows.column_names:
            continue
        values = [value for value in rows[name].to_pylist() if value is not None]
        least: Any = min(values, default=None)
        greatest: Any = max(values, default=None)
        if name == "text" and greatest is not None:
            least, greatest = least[:32], greatest if len(greatest) <= 32 else f"{greatest[:32]}\U0010ffff"
        if name == "at" and greatest is not None:
            least, greatest = (each.replace(microsecond=each.microsecond // 1000 * 1000) for each in (least, greatest))
        for which, bound in (("min", least), ("max", greatest)):
            kept[f"{which}.{name}"] = pa.array([bound], rows.schema.field(name).type)
        kept[f"null_count.{name}"] = [rows.num_rows - len(values)]
    return pa.table(kept)


@pytest.mark.parametrize("seed", range(100))
def test_no_file_with_one_of_the_keys_is_left_out_by_its_statistics(seed: int) -> None:
    chance = random.Random(seed)
    names = chance.sample([*SPREAD], chance.randint(1, 3))
    rows, others = (spread(chance, names, chance.randint(1, 4)) for _ in range(2))
    (spans,) = spans_listed(kept_by_spark(rows), rows.schema)
    for place in range(rows.num_rows):
        assert Keys(pa.concat_tables([others, rows.slice(place, 1)])).may_be_within(spans), (spans, rows.to_pylist())


@pytest.mark.parametrize(
    ("least", "greatest", "text"),
    [
        # The last of 32 characters is one half of two.
        ("a", "x" * 31 + "?\U0010ffff", "x" * 31 + "\U0001f30a"),
        # A byte that is no character is less than é, and what stands for it is greater.
        ("a\ufffd", "b", "aé"),
        ("a", "b\ufffd", "b\U0001f30a"),
    ],
)
def test_texts_are_found_whose_bounds_are_not_written_as_they_are(least: str, greatest: str, text: str) -> None:
    kept = pa.table({"num_records": [9], "min.text": [least], "max.text": [greatest], "null_count.text": [0]})
    (spans,) = spans_listed(kept, pa.schema([("text", pa.string())]))
    assert Keys(pa.table({"text": [text]})).may_be_within(spans)
    assert not Keys(pa.table({"text": ["A"]})).may_be_within(spans)


@pytest.mark.parametrize("seed", range(10))
def test_rows_of_the_keys_are_found_in_the_files_of_a_table(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    names = chance.sample([*SPREAD], chance.randint(1, 3))
    parts = [spread(chance, [*SPREAD], chance.randint(1, 9)) for _ in range(6)]
    for rows in parts:
        write_deltalake(tmp_path, rows, mode="append")
    table = DeltaTable(tmp_path)
    for keys in (spread(chance, names, chance.randint(0, 3)) for _ in range(20)):
        wanted, whole = {*texts(keys)}, pa.concat_tables(parts)
        expected = sorted(
            row for row, key in zip(texts(whole), texts(whole.select(names)), strict=True) if key in wanted
        )
        found = delta.among(table, Keys(keys), [*SPREAD], 1000)
        assert found is not None and sorted(texts(found)) == expected


@pytest.mark.parametrize("seed", range(100))
def test_parts_of_a_file_are_left_out_that_have_none_of_the_keys(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    names = chance.sample([*SPREAD], chance.randint(1, 3))
    parts = [spread(chance, [*SPREAD], 3) for _ in range(8)]
    whole = pa.concat_tables(parts)
    pq.write_table(whole, tmp_path / "file", row_group_size=3)
    storage = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    for keys in (spread(chance, names, chance.randint(0, 2)) for _ in range(10)):
        wanted = {*texts(keys)}
        expected = [row for row, key in zip(texts(whole), texts(whole.select(names)), strict=True) if key in wanted]
        found = rows_among(storage, [DataFile("file", 24)], whole.schema, Keys(keys), 1000)
        assert found is not None and texts(found) == expected


def test_files_and_their_parts_without_a_key_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        days = [INSTANT + timedelta(days=number, hours=hour) for hour in range(24)]
        write_deltalake(tmp_path, pa.table({"at": pa.array(days, pa.timestamp("us", "UTC"))}), mode="append")
    table = DeltaTable(tmp_path)
    keys = Keys(pa.table({"at": pa.array([INSTANT + timedelta(hours=30)], pa.timestamp("us", "UTC"))}))
    monkeypatch.setattr(matching, "MOST_SCANNED", 24)
    found = delta.among(table, keys, ["at"], 1)
    assert found is not None and found.num_rows == 1

    group = pa.table({"id": pa.array(range(1000)), "text": ["x" * 1000 + str(number) for number in range(1000)]})
    pq.write_table(group, tmp_path / "file", row_group_size=100, use_dictionary=False)
    monkeypatch.setattr(matching, "MOST_SCANNED", 1000)
    monkeypatch.setattr(matching, "MOST_READ", 150_000)
    storage = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    one = rows_among(storage, [DataFile("file", 1000)], group.schema, Keys(pa.table({"id": [150]})), 1)
    assert one is not None and one["id"].to_pylist() == [150]


def one_file(folder: Path) -> fs.FileSystem:
    pq.write_table(pa.table({"id": pa.array(range(100)), "text": ["x" * 100] * 100}), folder / "file")
    return fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem())


COLUMNS = pa.schema([("id", pa.int64()), ("text", pa.string())])


@pytest.mark.parametrize(
    ("bound", "number"), [("MOST_FILES", 0), ("MOST_SCANNED", 99), ("MOST_READ", 500), ("MOST_FOUND", 500)]
)
def test_rows_of_many_files_rows_or_bytes_are_left_to_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, number: int
) -> None:
    storage, files, keys = one_file(tmp_path), [DataFile("file", 100)], Keys(pa.table({"id": range(50)}))
    found = rows_among(storage, files, COLUMNS, keys, 50)
    assert found is not None and found.num_rows == 50
    monkeypatch.setattr(matching, bound, number)
    assert rows_among(storage, files, COLUMNS, keys, 50) is None


def test_equal_texts_count_as_often_as_they_are_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file has the text once: 10 kB, which are 20 MB of rows."""
    pq.write_table(pa.table({"id": range(2_000), "text": ["x" * 10_000] * 2_000}), tmp_path / "file")
    storage, files = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), [DataFile("file", 2_000)]
    keys = Keys(pa.table({"id": [7]}))
    monkeypatch.setattr(matching, "MOST_READ", 30_000_000)
    found = rows_among(storage, files, COLUMNS, keys, 1)
    assert found is not None and found["id"].to_pylist() == [7]
    monkeypatch.setattr(matching, "MOST_READ", 10_000_000)
    assert rows_among(storage, files, COLUMNS, keys, 1) is None


def test_rows_of_an_unknown_number_are_left_to_spark(tmp_path: Path) -> None:
    storage, keys = one_file(tmp_path), Keys(pa.table({"id": [1]}))
    assert rows_among(storage, [DataFile("file", None)], COLUMNS, keys, 50) is None


def test_no_file_is_opened_for_more_keys_or_rows_than_are_wanted() -> None:
    nowhere, files = fs.SubTreeFileSystem("/nowhere", fs.LocalFileSystem()), [DataFile("file", 100)]
    assert rows_among(nowhere, files, COLUMNS, Keys(pa.table({"id": range(51)})), 50) is None
    assert rows_among(nowhere, files, COLUMNS, None, 99) is None


def test_rows_are_read_of_files_old_and_new_up_to_a_number(tmp_path: Path) -> None:
    columns = pa.schema([("id", pa.int64()), ("added", pa.string())])
    pq.write_table(pa.table({"id": [1, 2], "other": [0, 0]}), tmp_path / "old")
    pq.write_table(pa.table({"added": ["a", "b"], "id": [2, 3]}), tmp_path / "new")
    storage, keys = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), Keys(pa.table({"id": [2]}))
    files = [DataFile("old", 2), DataFile("new", 2)]
    found = rows_among(storage, files, columns, keys, 2)
    assert found is not None and found.to_pylist() == [{"id": 2, "added": None}, {"id": 2, "added": "a"}]
    assert rows_among(storage, files, columns, keys, 1) is None
    for type_ in (pa.string(), pa.float64(), pa.list_(pa.string())):
        older, null = columns.append(pa.field("newest", type_)), Keys(pa.table({"newest": pa.array([None], type_)}))
        without = rows_among(storage, files, older, null, 4)
        assert without is not None and without["id"].to_pylist() == [1, 2, 2, 3]
    none = rows_among(storage, [], columns, keys, 1)
    assert none is not None and none.schema == columns and none.num_rows == 0


@pytest.mark.parametrize("size", [None, 1, matching._WHOLE + 1], ids=["of unknown size", "small", "large"])
def test_files_of_an_object_store_are_read_ahead_and_given_in_their_order(tmp_path: Path, size: int | None) -> None:
    columns = pa.schema([("id", pa.int64())])
    for number in range(20):
        pq.write_table(pa.table({"id": pa.array([number], pa.int64())}), tmp_path / str(number))
    # Any storage but a folder of this machine is taken for one.
    store = fs.SubTreeFileSystem("", fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()))
    files = [DataFile(str(number), 1, size=size) for number in range(20)]
    found = rows_among(store, files, columns, None, 20)
    assert found is not None and found["id"].to_pylist() == [*range(20)]
    missing = [*files[:3], DataFile("none", 1, size=size), *files[3:]]
    with pytest.raises(FileNotFoundError):
        rows_among(store, missing, columns, None, 30)
