"""The lines of a file are those of Spark's text source, however the file is cut into parts and blocks."""

from __future__ import annotations

import bz2
import gzip
import pickle
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streaming.sources import file_lines
from streaming.sources.file_lines import FileLines, shared_out
from streaming.spark import FileInfo, visible_files
from tests.support.seeds import LAW_SEED, draws

PIECES = (
    b"a",
    b"bc",
    b"\n",
    b"\n",
    b"\r",
    b"\r\n",
    b"\n\r",
    b" ",
    "é".encode(),
    b"\xff",
    b"\x00",
    b"\xef\xbb\xbf",
    b"long" * 9,
)
Line = tuple[str, bytes, int, int]


def drawn_file(random: Random) -> bytes:
    content = b"".join(random.choices(PIECES, k=random.randrange(40)))
    return (b"\xef\xbb\xbf" if random.random() < 0.2 else b"") + content


def lines_of(groups: Sequence[Sequence[FileLines]]) -> list[Line]:
    """Path, payload, modification time in microseconds, and size; positions are in order, and none twice."""
    found: list[Line] = []
    positions: list[int] = []
    for part in (part for group in groups for part in group):
        again = pickle.loads(pickle.dumps(part))
        for batch in again.batches():
            assert batch.num_rows
            batch.validate(full=True)
            assert batch.column("_raw").type == pa.binary()
            origins = batch.column("_origin")
            modified = origins.field("modified").cast(pa.int64()).to_pylist()
            columns = (origins.field("path"), batch.column("_raw"), modified, origins.field("size"))
            path, raw, times, sizes = (each if isinstance(each, list) else each.to_pylist() for each in columns)
            found += zip(path, raw, times, sizes, strict=True)
            positions += origins.field("position").to_pylist()
    assert positions == sorted(set(positions))
    return found


def lines_of_spark(spark: SparkSession, folder: Path) -> list[Line]:
    meta = F.col("_metadata")
    rows = spark.read.format("text").option("recursiveFileLookup", "true").load(str(folder))
    told = rows.select(
        meta.file_path, F.col("value").cast("binary"), F.unix_micros(meta.file_modification_time), meta.file_size
    )
    # Spark says it file by file, in parts that it numbers.
    return [(row[0], bytes(row[1]), row[2], row[3]) for row in told.collect()]


def by_file(lines: Sequence[Line]) -> dict[str, list[Line]]:
    files: dict[str, list[Line]] = {}
    for line in lines:
        files.setdefault(line[0], []).append(line)
    return files


def files_in(spark: SparkSession, folder: Path) -> list[FileInfo]:
    return [
        FileInfo(f"file://{each.path.removeprefix('file:')}", each.size, each.modified)
        for each in visible_files(spark, str(folder))
    ]


@pytest.mark.parametrize("seed", [1, 2, LAW_SEED])
def test_the_lines_are_those_of_sparks_text_source_however_small_parts_and_blocks_are(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    random = draws("lines", seed)
    for number in range(60):
        content = drawn_file(random)
        if number % 10 == 0:
            (tmp_path / f"{number:03}.gz").write_bytes(gzip.compress(content))
        else:
            (tmp_path / f"{number:03}.txt").write_bytes(content)
    expected = by_file(lines_of_spark(spark, tmp_path))
    assert expected
    files = files_in(spark, tmp_path)
    for block, part in ((1, 1), (2, 7), (5, 3), (17, 10_000), (64, 20)):
        monkeypatch.setattr(file_lines, "_BLOCK", block)
        monkeypatch.setattr(file_lines, "OF_ONE_TASK", part)
        monkeypatch.setattr(file_lines, "_LARGEST", part)
        found = by_file(lines_of(shared_out(files, str(tmp_path), 3)))
        assert found == expected, (block, part, seed)


def test_a_path_is_told_as_spark_tells_it(spark: SparkSession, tmp_path: Path) -> None:
    names = ("a b.json", "100%.json", "é ü.json", "q?x#y.json", "[1]{2}.json", "plus+and&.json", "sub/ä=1;2,'.json")
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x\n")
    found = lines_of(shared_out(files_in(spark, tmp_path), str(tmp_path), 2))
    assert sorted(found) == sorted(lines_of_spark(spark, tmp_path))


def test_files_are_shared_out_among_tasks_in_order_and_no_task_gets_too_little(tmp_path: Path) -> None:
    mega = 2**20
    files = [
        FileInfo(f"file://{tmp_path}/{name}", size * mega, 0)
        for name, size in (("a", 1), ("b", 9), ("c", 0), ("d.gz", 6))
    ]
    groups = shared_out(files, str(tmp_path), 2)
    told = [[(part.name, part.start // mega, part.end and part.end // mega) for part in group] for group in groups]
    assert told == [[("a", 0, 1), ("b", 0, 7)], [("b", 7, 9), ("d.gz", 0, None)]]
    assert len(shared_out(files[:1], str(tmp_path), 2)) == 1
    numbers = [part.number for group in groups for part in group]
    assert numbers == list(range(len(numbers)))


def test_files_that_are_packed_as_only_spark_unpacks_them_have_no_parts(tmp_path: Path) -> None:
    (tmp_path / "a.bz2").write_bytes(bz2.compress(b"x\n"))
    assert shared_out([FileInfo(f"file://{tmp_path}/a.bz2", 40, 0)], str(tmp_path), 2) == ()
    assert shared_out([FileInfo(f"file://{tmp_path}/a.txt", 0, 0)], str(tmp_path), 2) == ()


def test_a_file_of_one_kind_of_line_end_is_read_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of CR alone, so that the memory of a task does not grow with its file."""
    monkeypatch.setattr(file_lines, "_BLOCK", 1_000)
    path = tmp_path / "cr.txt"
    path.write_bytes(b"0123456789\r" * 5_000)
    size = path.stat().st_size
    (part,) = shared_out([FileInfo(f"file://{path}", size, 0)], str(tmp_path), 1)[0]
    batches = [batch.num_rows for batch in part.batches()]
    assert sum(batches) == 5_000 and max(batches) < 200
