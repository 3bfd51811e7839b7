"""The lines at which the payloads of a file begin, told from the file alone, as whoever opens it would count them."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import os
import zlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming import CsvRecords, Files, Lake
from streaming.sources import FileRecords
from streaming.tables import storage
from tests.support.object_store import Bucket

MOST = 1_000_000
FIELDS = st.lists(st.text(st.sampled_from('ab,;"\n\r é'), max_size=5), min_size=2, max_size=3)


def origin_of(file: Path) -> dict[str, Any]:
    """A row's `_origin` of a file as it is now."""
    status = file.stat()
    modified = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=status.st_mtime_ns // 1_000_000)
    return {"path": f"file:{file}", "size": status.st_size, "modified": modified, "position": 0}


def read(folder: Path, content: bytes, name: str = "a.json", **declared: Any) -> FileRecords | None:
    file = folder / name
    file.write_bytes(content)
    return Files(str(folder), **declared).records(Lake(str(folder)), origin_of(file), MOST)


@given(st.lists(FIELDS, max_size=6), st.sampled_from(["\n", "\r\n", "\r"]), st.booleans())
def test_a_record_of_csv_begins_at_the_line_that_the_reader_of_python_is_at(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]], end: str, marked: bool
) -> None:
    text = io.StringIO(newline="")
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator=end).writerows(rows)
    content = b"\xef\xbb\xbf" * marked + text.getvalue().encode()
    # Within a record of Python's a line ends with LF alone.
    begins, line = [], 1
    for row in rows:
        begins.append(line)
        line += 1 + sum(len(field.replace("\r\n", "\n").replace("\r", "\n").split("\n")) - 1 for field in row)
    found = read(tmp_path_factory.mktemp("landing"), content, "a.csv", payloads=CsvRecords())
    assert found is not None and (len(found.payloads), [*found.lines]) == (len(rows), begins)


@given(st.lists(st.sampled_from(["", "{}", " ", '{"a": "é"}']), max_size=8), st.sampled_from(["\n", "\r\n", "\r"]))
def test_each_line_is_a_payload_also_one_without_text(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], end: str
) -> None:
    found = read(tmp_path_factory.mktemp("landing"), "".join(f"{line}{end}" for line in lines).encode())
    assert found is not None and [payload.decode() for payload in found.payloads] == lines
    assert [*found.lines] == [*range(1, len(lines) + 1)]


@pytest.mark.parametrize(
    ("declared", "content", "lines"),
    [
        ({"payloads": "array"}, b'[\n  {"a": 1},\n\n  {"a":\n 2}, {"a": 3}\n]', [2, 4, 5]),
        ({"payloads": "file"}, b'{"a":\n1}', [1]),
        (
            {"payloads": CsvRecords(header=True, comment="#")},
            b'# by night\nid,n\n# a,1\na,1\nb,"x\ny"\nc,3\n',
            [4, 5, 7],
        ),
        ({"encoding": "latin-1"}, b"a\xe9\n\x85b\nc", [1, 2, 3]),
    ],
)
def test_the_line_is_that_at_which_a_payload_begins(
    tmp_path: Path, declared: Any, content: bytes, lines: list[int]
) -> None:
    found = read(tmp_path, content, **declared)
    assert found is not None and [*found.lines] == lines


@pytest.mark.parametrize(
    ("end", "packed"), [(".gz", gzip.compress), (".bz2", bz2.compress), (".deflate", zlib.compress)]
)
def test_lines_are_those_of_the_file_as_it_is_unpacked(
    tmp_path: Path, end: str, packed: Callable[[bytes], bytes]
) -> None:
    halves = packed(b'{"a": 1}\n\n') + packed(b'{"a": 2}\n')
    found = read(tmp_path, halves, f"a.json{end}")
    assert found is not None
    assert [
        (line, json.loads(payload)["a"]) for line, payload in zip(found.lines, found.payloads, strict=True) if payload
    ] == [
        (1, 1),
        (3, 2),
    ]


def test_a_file_that_is_another_one_by_now_has_no_lines(tmp_path: Path) -> None:
    file, source, lake = tmp_path / "landing" / "a b.json", Files("landing"), Lake(str(tmp_path))
    file.parent.mkdir()
    file.write_bytes(b"{}\n{}\n")
    origin = {**origin_of(file), "path": f"file:{str(file).replace(' ', '%20')}"}
    found = source.records(lake, origin, MOST)
    assert found is not None and [*found.lines] == [1, 2]
    assert source.records(lake, origin, 5) is None
    assert Files("elsewhere").records(lake, origin, MOST) is None
    touched = file.stat().st_mtime_ns + 2_000_000_000
    os.utime(file, ns=(touched, touched))
    assert source.records(lake, origin, MOST) is None
    file.write_bytes(b"{}\n")
    assert source.records(lake, {**origin_of(file), "size": 6, "path": origin["path"]}, MOST) is None
    file.unlink()
    assert source.records(lake, origin, MOST) is None


def test_what_unpacks_to_more_than_is_asked_for_and_what_is_damaged_has_no_lines(tmp_path: Path) -> None:
    assert read(tmp_path, gzip.compress(b"{}\n" * MOST), "large.gz") is None
    assert read(tmp_path, b"no gzip", "damaged.gz") is None
    assert read(tmp_path, b"\0\0\0\2\0\0\0\1a", "framed.snappy") is None


def test_a_file_on_an_object_store_has_its_lines(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "AWS_ENDPOINT_URL": bucket.endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA-OF-THE-STREAM")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of-the-stream")
    bucket.put("a b.json.gz", gzip.compress(b"{}\n\n{}\n"), "landing/")
    landing = f"s3://{bucket.name}/landing"
    info = storage.below(landing).get_file_info("a b.json.gz")
    origin = {"path": f"s3a://{bucket.name}/landing/a%20b.json.gz", "size": info.size, "modified": info.mtime}
    found = Files(landing).records(Lake("/none"), origin, MOST)
    assert found is not None and [*zip(found.lines, found.payloads, strict=True)] == [(1, b"{}"), (2, b""), (3, b"{}")]
    later = origin["modified"] + timedelta(seconds=1)
    assert Files(landing).records(Lake("/none"), {**origin, "modified": later}, MOST) is None
    assert Files(landing).records(Lake("/none"), {**origin, "path": f"s3a://{bucket.name}/landing/b"}, MOST) is None
