"""Landing: what is there after a writer has died at any step, in which order, and under which names."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from streaming.base.errors import ReceiverError
from streaming.sources.receivers import landing
from streaming.sources.receivers.connector import Received
from streaming.sources.receivers.landing import LandingFolder
from tests.support.instants import T0

NOON = T0 + timedelta(hours=12)


def opened(folder: Path, *, completes: bool = True, now: datetime = NOON, of: str = "") -> LandingFolder:
    """The next writer, which finds what the one before it left."""
    return LandingFolder(folder, "in", completes=completes, of=of, now=lambda: now)


def add(landing: LandingFolder, *rows: str, cursor: Any = None) -> None:
    landing.add(Received([row.encode() for row in rows], cursor))


def visible(folder: Path) -> list[list[str]]:
    return [path.read_text().splitlines() for path in sorted(folder.glob("in-*"))]


def test_a_file_is_seen_whole_or_not_at_all(tmp_path: Path) -> None:
    writer = opened(tmp_path)
    add(writer, "a", "b")
    add(writer, "c")
    assert (visible(tmp_path), writer.rows, writer.size) == ([], 3, 6)
    assert writer.land() == tmp_path / "in-2026-01-01T12-00-00.000000Z.txt"
    assert (visible(tmp_path), writer.rows, writer.size, writer.age) == ([["a", "b", "c"]], 0, 0, 0)
    assert writer.land() is None


def test_names_and_times_of_files_grow_across_restarts_also_where_the_clock_does_not(tmp_path: Path) -> None:
    for now in (NOON, NOON, NOON - timedelta(hours=1), NOON + timedelta(hours=1)):
        writer = opened(tmp_path, now=now)
        for _ in range(2):
            add(writer, "row")
            writer.land()
    # The state is lost: the files that are there tell as well.
    (tmp_path / ".in" / "state.json").unlink()
    writer = opened(tmp_path, now=NOON)
    add(writer, "row")
    writer.land()
    times = [path.stat().st_mtime_ns for path in sorted(tmp_path.glob("in-*"))]
    assert len(times) == 9
    assert all(later - earlier >= 10_000_000 for earlier, later in pairwise(times))


def test_whole_rows_of_a_writer_that_died_are_landed_by_the_next_where_they_do_not_come_again(tmp_path: Path) -> None:
    writer = opened(tmp_path)
    add(writer, "a", "b")
    (hidden,) = (tmp_path / ".in").glob("in-*")
    with hidden.open("ab") as torn:
        torn.write(b"half a ro")
    after = opened(tmp_path)
    assert (visible(tmp_path), after.landed_before) == ([["a", "b"]], 2)
    add(after, "c")
    after.land()
    assert visible(tmp_path) == [["a", "b"], ["c"]]
    assert opened(tmp_path).landed_before == 0


def test_whole_rows_of_a_file_of_many_blocks_are_landed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landing, "_AT_ONCE", 4)
    for content, rows in (
        (b"a\nbcd\nefghi\n", ["a", "bcd", "efghi"]),
        (b"a\nbcd\nefghi\nthe half of one", ["a", "bcd", "efghi"]),
        (b"abc\n", ["abc"]),
        (b"no row", []),
    ):
        folder = tmp_path / str(len(content))
        add(opened(folder), "x")
        (hidden,) = (folder / ".in").glob("in-*")
        hidden.write_bytes(content)
        assert (opened(folder).landed_before, visible(folder)) == (len(rows), [rows] if rows else [])


def test_a_large_file_that_is_thrown_away_is_not_read(tmp_path: Path) -> None:
    add(opened(tmp_path, completes=False), "a")
    (hidden,) = (tmp_path / ".in").glob("in-*")
    # More than the memory of any machine, of which the disk has nothing.
    os.truncate(hidden, 2**42)
    opened(tmp_path, completes=False)
    assert not hidden.exists()


def test_rows_that_come_again_are_thrown_away_with_the_writer_that_died(tmp_path: Path) -> None:
    writer = opened(tmp_path, completes=False)
    add(writer, "a", cursor=1)
    writer.land()
    add(writer, "b", cursor=2)
    after = opened(tmp_path, completes=False)
    assert (after.cursor, visible(tmp_path)) == (1, [["a"]])
    assert list((tmp_path / ".in").glob("in-*")) == []


def test_a_cursor_that_moves_without_rows_is_there_after_a_restart(tmp_path: Path) -> None:
    writer = opened(tmp_path, completes=False)
    add(writer, "a", cursor=1)
    writer.land()
    add(writer, cursor=1)
    assert writer.age == 0, "it has not moved"
    add(writer, cursor=2)
    assert writer.age > 0 and opened(tmp_path, completes=False).cursor == 1
    assert writer.land() is None
    after = opened(tmp_path, completes=False)
    assert (after.cursor, after.age, writer.age, visible(tmp_path)) == (2, 0, 0, [["a"]])


class Killed(BaseException):
    """The writer dies here."""


@pytest.mark.parametrize("moment", ["before the file is durable", "before the state", "after the state", "at the end"])
def test_rows_and_cursor_land_together_wherever_the_writer_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    writer = opened(tmp_path, completes=False)
    add(writer, "a", cursor=1)
    writer.land()
    add(writer, "b", cursor=2)
    steps = ["before the file is durable", "before the state", "after the state", "at the end"]
    passed = 0

    def dies(path: Path) -> None:
        nonlocal passed
        if steps[passed] == moment:
            raise Killed
        passed += 1

    with monkeypatch.context() as dying:
        dying.setattr(landing, "make_durable", dies)
        with pytest.raises(Killed):
            writer.land()

    after = opened(tmp_path, completes=False)
    landed = [row for file in visible(tmp_path) for row in file]
    assert (after.cursor, landed) in [(1, ["a"]), (2, ["a", "b"])]
    assert (after.cursor == 2) == (moment in ("after the state", "at the end"))


def test_rows_that_could_not_be_written_leave_no_trace_and_may_be_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = opened(tmp_path)
    add(writer, "a")
    assert writer._file is not None

    class FullDisk(type(writer._file)):  # type: ignore[misc]
        def write(self, content: Any) -> int:
            super().write(bytes(content)[:1])
            raise OSError(28, "No space left on device")

    whole = writer._file
    writer._file = FullDisk(whole.name, "a")
    with pytest.raises(OSError, match="No space left"):
        add(writer, "bcd")
    writer._file = whole
    add(writer, "bcd")
    writer.land()
    assert visible(tmp_path) == [["a", "bcd"]]


def test_a_row_with_a_line_break_is_refused_as_it_would_become_two(tmp_path: Path) -> None:
    writer = opened(tmp_path)
    with pytest.raises(ReceiverError, match=r"a row has a line break in it, b'b\\nc'; let the connector take it out"):
        add(writer, "a", "b\nc")
    with pytest.raises(ReceiverError, match=r"a row has a line break in it, b'b\\rc'"):
        add(writer, "a", "b\rc")
    assert (writer.rows, writer.land()) == (0, None)


def test_who_waits_for_a_word_gets_it_once_the_rows_are_landed_and_not_before(tmp_path: Path) -> None:
    writer, words = opened(tmp_path, completes=False), list[str]()
    writer.add(Received([b"a"], landed=lambda: words.append("a")))
    writer.add(Received([b"b"], landed=lambda: words.append(str(visible(tmp_path)))))
    assert words == []
    writer.land()
    writer.tell()
    assert words == ["a", "[['a', 'b']]"]
    writer.add(Received([b"c"], landed=lambda: words.append("c")))
    writer.discard()
    writer.land()
    writer.tell()
    assert (words[2:], visible(tmp_path)) == ([], [["a", "b"]])


def test_who_waits_for_a_word_where_nothing_is_a_row_is_due_like_rows(tmp_path: Path) -> None:
    writer, words = opened(tmp_path, completes=False), list[str]()
    writer.add(Received([], refused=3, landed=lambda: words.append("refused")))
    assert writer.age > 0
    assert writer.land() is None
    writer.tell()
    assert (words, writer.age) == (["refused"], 0)


def test_a_file_may_be_moved_away_once_it_was_taken(tmp_path: Path) -> None:
    writer = opened(tmp_path, completes=False)
    add(writer, "a", cursor=1)
    landed = writer.land()
    assert landed is not None
    landed.unlink()
    assert (opened(tmp_path, completes=False).cursor, visible(tmp_path)) == (1, [])


def test_a_state_that_cannot_be_read_is_named_with_what_to_do(tmp_path: Path) -> None:
    opened(tmp_path)
    (tmp_path / ".in" / "state.json").write_text("{")
    with pytest.raises(ReceiverError, match=r"state.json' is no state of a receiver .* put it back, or remove it"):
        opened(tmp_path)
    (tmp_path / ".in" / "state.json").unlink()
    opened(tmp_path)


def to_cursor(folder: Path) -> LandingFolder:
    return LandingFolder(folder, "in", completes=False, to_cursor=True, now=lambda: NOON)


def test_rows_wait_for_their_cursor_and_are_forgotten_where_it_does_not_come(tmp_path: Path) -> None:
    writer = to_cursor(tmp_path)
    add(writer, "a", cursor=1)
    add(writer, "b", "c")
    assert (writer.rows, writer.open_rows) == (3, 2)
    writer.forget()
    assert (writer.rows, writer.open_rows, writer.size) == (1, 0, 2)
    add(writer, "d")
    add(writer, cursor=2)
    add(writer, "e")
    writer.land()
    assert (visible(tmp_path), writer.rows, to_cursor(tmp_path).cursor) == ([["a", "d"]], 0, 2)


def test_a_writer_that_has_nothing_but_rows_without_a_cursor_lands_none(tmp_path: Path) -> None:
    writer = to_cursor(tmp_path)
    add(writer, "a")
    assert writer.land() is None
    assert (writer.rows, writer.open_rows, writer.age) == (0, 0, 0)
    add(writer, cursor=1)
    add(writer, "b")
    assert writer.land() is None
    assert (visible(tmp_path), to_cursor(tmp_path).cursor) == ([], 1)
    add(writer, "b", cursor=2)
    writer.land()
    assert visible(tmp_path) == [["b"]]
    assert not [*(tmp_path / ".in").glob("in-*")]


def test_rows_whose_file_somebody_has_removed_are_told_and_nobody_hears_that_they_are_landed(tmp_path: Path) -> None:
    words: list[str] = []
    one = opened(tmp_path, completes=False)
    add(one, "before", cursor=1)
    one.land()
    one.add(Received([b"row"], 2, landed=lambda: words.append("row")))
    # A receiver of the same name in another lake begins, and finds a file of a writer that must have died.
    opened(tmp_path, completes=False)
    with pytest.raises(ReceiverError, match=r"is gone, and with it 1 row that had come and were not landed"):
        one.land()
    one.tell()
    assert (words, visible(tmp_path), one.cursor, one.rows) == ([], [["before"]], 1, 0)
    one.add(Received([b"row"], 2, landed=lambda: words.append("row")))
    one.land()
    one.tell()
    assert (words, visible(tmp_path)) == (["row"], [["before"], ["row"]])


def test_a_cursor_of_another_source_is_refused_until_somebody_says_that_it_is_the_same(tmp_path: Path) -> None:
    # One of an earlier release does not say what it is of.
    for of in ("", "orders", "orders"):
        writer = opened(tmp_path, of=of)
        add(writer, of, cursor=100)
        writer.land()
    with pytest.raises(ReceiverError, match=r"is of orders, and the receiver is to go on at it in payments") as refused:
        opened(tmp_path, of="payments")
    assert "Give the receiver another name" in str(refused.value)
    state = tmp_path / ".in" / "state.json"
    state.write_text(state.read_text().replace("orders", "payments"))
    assert opened(tmp_path, of="payments").cursor == 100
