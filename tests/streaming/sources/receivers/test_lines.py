"""Bytes cut into lines, however they come."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from streaming.sources.receivers.connector import Received
from streaming.sources.receivers.tcp import LineCutter


def cut(chunks: list[bytes], longest: int = 1_000) -> tuple[list[bytes], int]:
    """The lines, and how many were refused."""
    cutter = LineCutter(longest)
    parts = [*(cutter.take(chunk) for chunk in chunks), cutter.end()]
    return [row for part in parts for row in part.rows], sum(part.refused for part in parts)


def pieces(content: bytes, cuts: list[int]) -> list[bytes]:
    bounds = [0, *sorted(cut % (len(content) + 1) for cut in cuts), len(content)]
    return [content[begin:end] for begin, end in pairwise(bounds)]


@given(
    lines=st.lists(st.binary(max_size=12).filter(lambda line: b"\n" not in line and not line.endswith(b"\r"))),
    ends=st.lists(st.sampled_from([b"\n", b"\r\n"]), min_size=40, max_size=40),
    cuts=st.lists(st.integers(0, 500)),
    longest=st.integers(3, 12),
)
def test_lines_do_not_depend_on_how_they_are_cut_and_longer_ones_are_counted(
    lines: list[bytes], ends: list[bytes], cuts: list[int], longest: int
) -> None:
    content = b"".join(line + end for line, end in zip(lines, ends, strict=False))
    lines = lines[:40]
    # A file has line ends at each CR, too.
    kept = [line.replace(b"\r", b" ") for line in lines if len(line) <= longest]
    assert cut(pieces(content, cuts), longest) == (kept, len(lines) - len(kept))


def test_what_follows_the_last_line_end_is_a_line_and_nothing_is_none() -> None:
    assert cut([b"a\n", b"b"]) == ([b"a", b"b"], 0)
    assert cut([b"a\n\n"]) == ([b"a", b""], 0)
    assert cut([b"a\rb\r\nc\rd"]) == ([b"a b", b"c d"], 0)


def test_what_follows_the_last_line_end_is_refused_where_the_connection_breaks_off() -> None:
    cutter = LineCutter(10)
    assert cutter.take(b"a,100\nb,12") == Received((b"a,100",))
    assert cutter.broken_off() == Received(refused=1)
    assert cutter.broken_off() == Received()


def test_a_line_without_an_end_takes_up_no_more_than_its_bound() -> None:
    cutter = LineCutter(10)
    assert cutter.take(b"x" * 11) == Received(refused=1)
    assert [cutter.take(b"x" * 1_000) for _ in range(3)] == [Received()] * 3
    assert cutter.take(b"\nnext\n") == Received((b"next",))
