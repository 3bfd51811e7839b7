"""A landed file asks for no more than is declared, whatever is packed in it, and however its lines are cut."""

from __future__ import annotations

import bz2
import gzip
import re
import zlib
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs

from streaming.sources import file_payloads
from streaming.sources.file_payloads import FileBounds


def in_several(pack: Callable[[bytes], bytes], content: bytes) -> bytes:
    """Packed in parts, one behind the other, of which the first is empty."""
    return b"".join(map(pack, (b"", content[:7], content[7:])))


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "zst": zstandard.compress,
    "deflate": zlib.compress,
    "several.gz": lambda content: in_several(gzip.compress, content),
    "several.zst": lambda content: in_several(zstandard.compress, content),
    "several.deflate": lambda content: in_several(zlib.compress, content),
    "txt": bytes,
}
LINES = st.lists(st.tuples(st.integers(0, 30), st.sampled_from([b"\n", b"\r", b"\r\n", b""])), max_size=12)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("landed")


def exceeded(folder: Path, name: str, content: bytes, bounds: FileBounds) -> str | None:
    (folder / name).write_bytes(content)
    return bounds.exceeded(fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem()), name)


@pytest.mark.parametrize("kind", PACKED)
@given(lines=LINES, longest=st.integers(1, 25), look_back=st.integers(1, 9))
def test_the_longest_line_is_found_wherever_it_is(
    folder: Path, kind: str, lines: list[tuple[int, bytes]], longest: int, look_back: int
) -> None:
    content = b"".join(b"x" * length + end for length, end in lines)
    too_long = max(map(len, re.split(rb"[\r\n]", content))) > longest
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_payloads, "_LOOK_BACK", look_back)
        violation = exceeded(folder, f"lines.{kind}", PACKED[kind](content), FileBounds(longest, 10_000))
    assert violation == (f"has a line of more than longest_line={longest} bytes" if too_long else None)


@pytest.mark.parametrize("kind", [kind for kind in PACKED if kind != "txt"])
def test_a_bomb_is_known_by_what_it_unpacks_to_and_costs_no_more_than_the_bound(folder: Path, kind: str) -> None:
    bomb = PACKED[kind](b"\n" * 3_000_000)
    bounds = FileBounds(1_000, 200_000)
    assert len(bomb) < 10_000 and bounds.may_exceed(f"bomb.{kind}", len(bomb))
    assert exceeded(folder, f"bomb.{kind}", bomb, bounds) == "unpacks to more than largest_unpacked=200,000 bytes"
    assert exceeded(folder, f"bomb.{kind}", bomb, FileBounds(1_000, 3_000_000)) is None


@given(st.integers(0, 100_000), st.integers(1, 200_000))
def test_a_file_is_left_alone_only_where_it_can_exceed_nothing(length: int, bound: int) -> None:
    # Nothing packs better than one byte over and over.
    for kind in ("gz", "deflate", "txt"):
        size = len(PACKED[kind](b"x" * length))
        assert length <= bound or FileBounds(bound, 10**9).may_exceed(f"f.{kind}", size)
        assert length <= bound or kind == "txt" or FileBounds(10**9, bound).may_exceed(f"f.{kind}", size)
    assert FileBounds(bound, bound).may_exceed("f.bz2", 50)


def test_what_is_not_packed_as_its_name_says_is_an_error(folder: Path) -> None:
    for kind in ("gz", "bz2", "zst", "deflate", "snappy", "lz4"):
        with pytest.raises(OSError):
            exceeded(folder, f"plain.{kind}", b"plain\n" * 100, FileBounds(10, 10))
    with pytest.raises(OSError):
        exceeded(folder, "empty.bz2", bz2.compress(b"") * 5_000, FileBounds(10, 10))


def test_a_frame_of_hadoop_is_left_to_it_where_the_file_has_all_of_its_first_chunk(folder: Path) -> None:
    chunk = pa.Codec("snappy").compress(b"line\n", asbytes=True)
    framed = (5).to_bytes(4) + len(chunk).to_bytes(4) + chunk
    assert exceeded(folder, "framed.snappy", framed, FileBounds(10, 10)) is None
    with pytest.raises(OSError, match=f"its first chunk has {len(chunk)} bytes by its head, and the file 14"):
        exceeded(folder, "cut.snappy", framed[:-1], FileBounds(10, 10))
