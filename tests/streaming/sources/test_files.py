"""Files as a source."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from deltalake import DeltaTable
from pyarrow import fs
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from docs.examples import late_counts
from streaming import CsvRecords, Files, Pipeline, drain
from streaming.base.errors import DeclarationError
from streaming.lake.lake import Lake
from streaming.log import read_batches, read_log
from streaming.sources import Source, file_lines, files
from streaming.spark import OF_ONE_TASK, planned
from tests.streaming.sources.contract import Reader, SourceCase, SourceContract
from tests.support.crash import Point, armed
from tests.support.feeds import land, readings
from tests.support.instants import NOW


class FilesCase(SourceCase):
    def __init__(self, lake: Lake, identity: Literal["path", "content"] = "path") -> None:
        self.source = Files("landing", files_per_batch=2, identity=identity)
        self.extracts = Files("landing", files_per_batch=1, identity=identity)
        self._landing = Path(self.source.location(lake))

    def deliver(self, *payloads: bytes) -> str:
        return land(self._landing, payloads).name

    def change(self, name: str) -> None:
        with (self._landing / name).open("ab") as file:
            file.write(b"more\n")

    def lose(self, name: str) -> None:
        (self._landing / name).unlink()

    def remove(self) -> None:
        shutil.rmtree(self._landing)


class TestFiles(SourceContract):
    @pytest.fixture
    def case(self, lake: Lake) -> FilesCase:
        return FilesCase(lake)


@pytest.mark.long
class TestFilesByContent(SourceContract):
    @pytest.fixture
    def case(self, lake: Lake) -> FilesCase:
        return FilesCase(lake, "content")


@pytest.mark.sampled
@pytest.mark.parametrize(("bytes_of_one_task", "files_of_the_log"), [(2**20, 1), (0, 2)])
def test_one_task_takes_a_batch_of_small_files_and_writes_one_file(
    bytes_of_one_task: int, files_of_the_log: int, spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (files, file_lines):
        monkeypatch.setattr(module, "OF_ONE_TASK", bytes_of_one_task)
    stream = replace(late_counts.readings, source=Files("landing", files_per_batch=2))
    for reading in ("a@1", "b@2"):
        land(Path(stream.source.location(lake)), readings(reading))
    drain(spark, lake, Pipeline(stream, (replace(late_counts.count_by_sensor, of=stream),)))
    log = DeltaTable(lake.log(stream))
    assert len(log.file_uris()) == files_of_the_log
    rows = log.to_pyarrow_table()
    assert sorted(rows["id"].to_pylist()) == ["a", "b"]
    assert len({origin["position"] for origin in rows["_origin"].to_pylist()}) == 2


def test_spark_divides_no_file_that_one_task_takes(spark: SparkSession, tmp_path: Path) -> None:
    """With as many cores as it likes; rows of such a file are numbered one by one."""
    (tmp_path / "small.txt").write_bytes(b"0123456\n" * (OF_ONE_TASK // 8))
    (tmp_path / "large.txt").write_bytes(b"0123456\n" * OF_ONE_TASK)
    one = spark.newSession()
    one.conf.set("spark.sql.files.minPartitionNum", "64")
    parts = {name: one.read.text(str(tmp_path / name)).rdd.getNumPartitions() for name in ("small.txt", "large.txt")}
    assert parts == {"small.txt": 1, "large.txt": 8}


def landed(lake: Lake, source: Source, files: dict[str, bytes], modified: int = 1_700_000_000) -> Path:
    """Files that were copied in one go: all have the same modification time, in seconds since the epoch."""
    assert isinstance(source, Files)
    folder = Path(source.location(lake))
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
        os.utime(folder / name, (modified, modified))
    return folder


def test_a_folder_that_was_copied_in_one_go_has_no_late_row_because_of_it(spark: SparkSession, lake: Lake) -> None:
    source = Files("landing", files_per_batch=2)
    stream = replace(late_counts.readings, source=source)
    files = {f"{place:02}.json": (f"{place:02}@{place * 10}", f"{place:02}@{place * 10 + 9}") for place in range(14)}
    content = {name: "\n".join(json.dumps(readings(each)[0]) for each in rows) for name, rows in files.items()}
    landed(lake, source, {name: content[name].encode() for name in sorted(files, reverse=True)})
    drain(spark, lake, Pipeline(stream, (replace(late_counts.count_by_sensor, of=stream),)), now=lambda: NOW)
    batches = [batch for batch in read_batches(lake, stream) if batch.summary.rows]
    assert [batch.summary.rows for batch in batches] == [4] * 7
    assert [batch.late for batch in batches] == [{"count_by_sensor": 0}] * 7


def test_files_come_by_time_then_path_through_links_and_only_those_that_are_meant(
    spark: SparkSession,
    lake: Lake,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = Files("landing", files_per_batch=4, names=("*.json", "?.txt"))
    folder = Path(source.location(lake))
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.symlink_to(tmp_path, target_is_directory=True)
    names = ["z.json", "b c.json", "b!c.json", "sub/a.json", "é.json", "e.txt", "a.json.tmp", "ee.txt", "_h.json"]
    landed(lake, source, {name: name.encode() for name in names})
    landed(lake, source, {"first.json": b"first.json"}, modified=1_600_000_000)
    (folder / "sub" / "loop").symlink_to(tmp_path, target_is_directory=True)
    other = tmp_path_factory.mktemp("other")
    landed(lake, Files(str(other)), {"o.json": b"x/o.json"})
    # A file has one path, by its own folder where that is below, and else by the first link.
    for link, leads in {"sub/a": tmp_path / "sub", "y": other, "x": other}.items():
        (folder / link).symlink_to(leads, target_is_directory=True)
    # Nothing of these can be read, nor keeps anything else from being read.
    for link, nowhere in {"gone.json": "nowhere", "itself.json": "itself.json", "below.json": "z.json/a"}.items():
        (folder / link).symlink_to(nowhere)
    os.mkfifo(folder / "pipe.json")
    (folder / os.fsdecode(b"bad\xff.json")).write_text("unseen")

    reader = Reader(spark, lake, source)
    count = source.backlog(lake, reader.checkpoint)
    assert (count({}).items, count({}).warning) == (8, NOT_UTF8)
    batches = reader.read_on()
    assert NOT_UTF8 in "\n".join(caplog.messages)
    # By the path as `_origin` has it, where a space is %20 and a letter that is not ASCII stays.
    paths = ["first.json", "b!c.json", "b c.json", "e.txt", "sub/a.json", "x/o.json", "z.json", "é.json"]
    assert [sorted(payload.decode() for payload, _ in rows) for rows in batches.values()] == [
        sorted(paths[:4]),
        sorted(paths[4:]),
    ]
    assert count({}).items == 0
    # Files that were taken before are known by these URIs.
    assert planned(reader.checkpoint, 0)[:1] == [f"file://{folder}/first.json"]

    origins = spark.createDataFrame(
        [(payload, origin) for rows in batches.values() for payload, origin in rows],
        f"_raw binary, _origin {source.origin}",
    )
    order = source.order_of(F.col("_origin"))
    assert [bytes(row["_raw"]).decode() for row in origins.orderBy(order).collect()] == paths
    changes = source.compare(spark, lake, origins.select("_origin")).changes
    assert [(change.kind, change.text) for change in changes] == [("waiting", NOT_UTF8)]


def by_content(lake: Lake, files: dict[str, str], identity: Literal["path", "content"] = "content") -> Pipeline:
    """The pipeline, once the files have landed: a text is the time and key of one reading (see `readings`)."""
    source = Files("landing", files_per_batch=4, identity=identity)
    landed(lake, source, {name: json.dumps(readings(text)[0]).encode() for name, text in files.items()})
    stream = replace(late_counts.readings, source=source)
    return Pipeline(stream, (replace(late_counts.count_by_sensor, of=stream),))


def ids(lake: Lake, pipeline: Pipeline) -> list[str]:
    return sorted(DeltaTable(lake.log(pipeline.stream)).to_pyarrow_table()["id"].to_pylist())


def test_bytes_that_are_there_again_under_another_path_are_in_the_log_once(
    spark: SparkSession, lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    names = ("first.json", "a b+é%.json", "sub/again.json")
    pipeline = by_content(lake, {"first.json": "a@1", "other.json": "b@1", "z.json": "b@1"})
    drain(spark, lake, pipeline)
    assert ids(lake, pipeline) == ["a", "b"], "of two that land together the first counts"
    by_content(lake, {names[1]: "a@1", names[2]: "a@1", "new.json": "c@1"})
    drain(spark, lake, pipeline)
    assert ids(lake, pipeline) == ["a", "b", "c"]
    warning = "Not read again, as the same bytes were read before: "
    folder = f"file://{pipeline.stream.source.location(lake)}"
    assert f"{warning}{folder}/z.json (as {folder}/other.json)." in "\n".join(caplog.messages)
    assert f"{folder}/{names[1]} (as {folder}/first.json), {folder}/{names[2]} (as" in "\n".join(caplog.messages)
    compared = pipeline.stream.source.compare(spark, lake, read_log(spark, lake, pipeline.stream).select("_origin"))
    assert (compared.changes, compared.ingested) == ((), 3)

    by_content(lake, {"waits.json": "d@1", "copy.json": "c@1"})
    compared = pipeline.stream.source.compare(spark, lake, read_log(spark, lake, pipeline.stream).select("_origin"))
    assert [change.name.rpartition("/")[2] for change in compared.changes] == ["waits.json"]


@pytest.mark.long
def test_a_file_whose_batch_was_not_committed_is_no_copy_of_itself(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    pipeline = by_content(lake, {"a.json": "a@1"})
    drain(spark, lake, pipeline)
    by_content(lake, {"b.json": "b@1"})

    def die() -> None:
        raise RuntimeError("the process dies")

    commit = Point("", "deltalake:DeltaTable", "create_write_transaction", 1, "/log")
    with armed(commit, die), pytest.raises(Exception, match="the process dies"):
        drain(spark, lake, pipeline)
    assert ids(lake, pipeline) == ["a"]
    drain(spark, lake, pipeline)
    assert ids(lake, pipeline) == ["a", "b"]


@pytest.mark.long
def test_a_file_that_only_a_later_state_of_the_lake_has_read_is_read_by_one_that_was_put_back(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    pipeline = by_content(lake, {"a.json": "a@1"})
    drain(spark, lake, pipeline)
    shutil.copytree(lake.root, tmp_path / "backup")
    by_content(lake, {"b.json": "b@1"})
    drain(spark, lake, pipeline)
    shutil.rmtree(lake.root)
    shutil.copytree(tmp_path / "backup", lake.root)
    by_content(lake, {"c.json": "b@1", "d.json": "a@1"})
    drain(spark, lake, pipeline)
    assert ids(lake, pipeline) == ["a", "b"]


@pytest.mark.long
def test_a_log_of_files_that_were_known_by_their_path_goes_on_with_their_content(
    spark: SparkSession, lake: Lake
) -> None:
    pipeline = by_content(lake, {"a.json": "a@1"}, identity="path")
    drain(spark, lake, pipeline)
    pipeline = by_content(lake, {"again.json": "a@1", "b.json": "b@1"})
    drain(spark, lake, pipeline)
    by_content(lake, {"c.json": "b@1"})
    drain(spark, lake, pipeline)
    assert ids(lake, pipeline) == ["a", "a", "b"], "what was read before has no content in the log"
    with pytest.raises(DeclarationError, match="identity='bytes' of Files is unknown; write 'path' or 'content'"):
        Files("landing", identity="bytes")  # type: ignore[arg-type]


NOT_UTF8 = r"Not read, as its name is not UTF-8: bad\xff.json. Rename it; the other files are read meanwhile."


@pytest.mark.parametrize(
    ("source", "files", "payloads"),
    [
        (
            Files("landing", files_per_batch=2, payloads="array", encoding="latin-1"),
            {
                "1.json.gz": gzip.compress('[{"a": "é"},\n {"a": 2}]'.encode("latin-1")),
                "2.json": b"[]",
                "3.json": b"[3]",
            },
            ['{"a": "é"}', '{"a": 2}', "3"],
        ),
        (
            Files("landing", files_per_batch=2, payloads=CsvRecords(";", "'")),
            {"1.csv": b"1;'a\nb'\r\n2;c\n", "2.csv": "3;'é".encode()},
            ["1;'a\nb'", "2;c", "3;'é"],
        ),
        (Files("landing", payloads="file"), {"1.json": b'{\n "a": 1\n}\n', "2.json": b""}, ['{\n "a": 1\n}\n']),
        (Files("landing", encoding="cp1252"), {"1.csv": b"\x80;1\r\n\xe9;2"}, ["€;1", "é;2"]),
    ],
    ids=["array", "records", "file", "lines"],
)
def test_a_payload_is_what_is_declared_each_in_one_place(
    spark: SparkSession, lake: Lake, source: Files, files: dict[str, bytes], payloads: list[str]
) -> None:
    landed(lake, source, files)
    rows = [row for batch in Reader(spark, lake, source).read_on().values() for row in batch]
    placed = sorted(rows, key=lambda row: (row[1]["path"], row[1]["position"]))
    assert [payload.decode() for payload, _ in placed] == payloads
    assert len({(origin["path"], origin["position"]) for _, origin in rows}) == len(rows)


def test_a_file_that_is_read_whole_is_bounded_as_a_line_is(spark: SparkSession, lake: Lake) -> None:
    source = Files("landing", payloads="array", longest_line=20)
    bounds = source.bounds
    assert not bounds.may_exceed("a.json", 20) and bounds.may_exceed("a.json", 21)
    folder = landed(
        lake, source, {"a.json": b"[1" + b" " * 19 + b"]", "b.json.gz": gzip.compress(b"[" + b" " * 21 + b"]")}
    )
    files = fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem())
    too_large = "has more than longest_line=20 bytes, and is read whole"
    assert [bounds.exceeded(files, name) for name in ("a.json", "b.json.gz")] == [too_large] * 2


@pytest.mark.parametrize("names", ["", "a/*.json", "*.{json,csv}", ("*.json", "[a-c]*"), 5, (5,)])
def test_what_is_no_pattern_of_names_is_refused(names: Any) -> None:
    with pytest.raises(DeclarationError, match=r"names.* of Files"):
        Files("landing", names=names)


def test_what_spark_says_of_a_file_that_it_could_not_read_names_the_file_and_what_to_do(
    spark: SparkSession, lake: Lake
) -> None:
    text = (
        "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:/landing/a%20b.snappy.  SQLSTATE: KD001\n"
        "Caused by: java.io.EOFException: Unexpected end of block in input stream\n\tat org.apache.hadoop.io"
    )
    error = Files("landing").explain(spark, Reader(spark, lake, Files("landing")).reading, text)
    assert str(error).startswith(
        "file:/landing/a%20b.snappy cannot be read (EOFException: Unexpected end of block in input stream). Nothing "
        "of its batch was taken. Move it out of the landing folder, leave an empty file under its name there"
    )
