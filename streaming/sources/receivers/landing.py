"""Where received rows land: a hidden file that grows, then whole under its final name, with the cursor behind it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import FileIO
from pathlib import Path
from typing import Any

from streaming.base import EPOCH, MICROSECOND, ReceiverError, counted, from_micros, to_micros
from streaming.sources.receivers.connector import Received
from streaming.tables import make_durable

_STEP = timedelta(milliseconds=10) // MICROSECOND
"""Spark orders files by milliseconds, and some file systems keep times less exactly than that."""

_AT_ONCE = 2**20
_INSTANT = "%Y-%m-%dT%H-%M-%S.%fZ"
_STATE = "state.json"


class LandingFolder:
    """The files of one receiver, by its `name`, in the landing folder `folder`; it has one writer.

    Rows are appended to a file in the hidden folder `.<name>`. `land` makes it durable, then replaces
    `.<name>/state.json`, which says which file was landed last and with which cursor: the row counts from that moment
    on. Then the file is moved to where `Files` finds it. The next writer finishes the move if this one dies between.

    A file that was not landed when its writer died is thrown away, as its rows come again; with `completes`, where they
    do not, its whole rows are landed. Rows may come before their cursor: with `to_cursor` those behind the last cursor
    are not landed either, and thrown away by `land` and `forget`.

    A file is named after the instant of its first row, which is also its modification time. Both grow from file to
    file, across restarts too, so Spark takes the files in order, and no name comes twice. A cursor that moves without
    rows is written as well, and with each what it is `of`.

    Raises:
        OSError: the folder cannot be used.
        ReceiverError: the state in it cannot be read, or its cursor is of another source.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        *,
        completes: bool,
        to_cursor: bool = False,
        of: str = "",
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._folder = folder
        self._name = name
        self._hidden = folder / f".{name}"
        self._now = now
        self._file: FileIO | None = None
        self._began: float | None = None
        self._waiting: list[Callable[[], None]] = []
        self._to_cursor = to_cursor
        self._of = of
        self._rows_to_cursor = self._size_to_cursor = 0
        self.rows = 0
        """Rows that came since a file was landed last."""
        self.size = 0
        """Their bytes."""
        self.must_land = False
        """True if one of these rows does not come again where it is not landed."""
        self.landed_before = 0
        """Rows that a writer before this one left behind, and this one landed."""
        self._hidden.mkdir(parents=True, exist_ok=True)
        state = self._read_state()
        self.cursor: Any = state.get("cursor")
        """Where the source goes on behind the rows that came."""
        self._check_same(state.get("of", ""))
        self._landed_cursor = self.cursor
        self._landed: str | None = state.get("landed")
        self._last = self._newest() if state.get("landed") is None else _instant_of(state["landed"])
        for left in sorted(self._hidden.glob(f"{name}-*")):
            self._settle(left, state.get("landed"), completes)

    @property
    def age(self) -> float:
        """Seconds since the first row, or cursor, that is not landed; 0 where there is none."""
        return 0.0 if self._began is None else time.monotonic() - self._began

    @property
    def open_rows(self) -> int:
        """Rows whose cursor has not come yet, so that they cannot be landed."""
        return self.rows - self._rows_to_cursor if self._to_cursor else 0

    def add(self, received: Received) -> None:
        """Append the rows to the hidden file: all of them, or none.

        Raises:
            OSError: they cannot be written.
            ReceiverError: a row has a line break, LF or CR.
        """
        if received.rows:
            content = b"".join(row + b"\n" for row in received.rows)
            if content.count(b"\n") != len(received.rows) or b"\r" in content:
                broken = next(row for row in received.rows if b"\n" in row or b"\r" in row)
                raise ReceiverError(f"a row has a line break in it, {broken[:200]!r}; let the connector take it out.")
            left = memoryview(content)
            size = self.size + len(left)
            if self._file is None:
                self._begin()
            assert self._file is not None
            try:
                while left:
                    left = left[self._file.write(left) :]
            except OSError:
                self._file.truncate(self.size)
                raise
            self.rows, self.size = self.rows + len(received.rows), size
            self.must_land = self.must_land or not received.comes_again
        if received.cursor is not None:
            self.cursor = received.cursor
            self._rows_to_cursor, self._size_to_cursor = self.rows, self.size
            if self.cursor != self._landed_cursor and self._began is None:
                self._began = time.monotonic()
        if received.landed is not None:
            self._waiting.append(received.landed)
            # The source waits for a word, also where nothing of what came is a row.
            if self._began is None:
                self._began = time.monotonic()

    def land(self) -> Path | None:
        """Put the rows that came into the landing folder, as one file; None where there are none.

        Raises:
            OSError: it cannot be done; it may be tried again.
            ReceiverError: somebody has removed the rows that are not landed; what can come again does.
        """
        self.forget()
        if self._file is None:
            if self.cursor != self._landed_cursor:
                self._write_state()
            self._began = None
            return None
        hidden = Path(os.fsdecode(self._file.name))
        # The file has been moved where an attempt failed behind that, and nowhere else may it be gone.
        if self._landed != hidden.name and not hidden.exists():
            rows = self.rows
            self.discard()
            self.cursor = self._landed_cursor
            raise ReceiverError(
                f"the file {str(hidden)!r} is gone, and with it {counted(rows, 'row')} that had come and were not "
                "landed: somebody has removed it, such as a receiver of this name in another lake that lands in this "
                "folder, too. Give each a name or a folder of its own."
            )
        target = self._commit(hidden)
        self._file.close()
        self._empty()
        return target

    def tell(self) -> None:
        """Give the word to the source that all that came is landed; to be called after `land`."""
        waiting, self._waiting = self._waiting, []
        for landed in waiting:
            landed()

    def discard(self) -> None:
        """Throw away the rows that are not landed, as their source gives them again, and the words it waits for."""
        if self._file is not None:
            self._file.close()
            Path(os.fsdecode(self._file.name)).unlink(missing_ok=True)
        self._waiting = []
        self._empty()

    def forget(self) -> None:
        """Throw away the rows whose cursor has not come, as their source gives them again.

        Raises:
            OSError: it cannot be done; it may be tried again.
        """
        if self._file is None or not self.open_rows:
            return
        if self._rows_to_cursor == 0:
            self._file.close()
            Path(os.fsdecode(self._file.name)).unlink(missing_ok=True)
            began = self._began
            self._empty()
            # A cursor that moved before them waits as long as it did.
            self._began = began if self.cursor != self._landed_cursor else None
            return
        self._file.truncate(self._size_to_cursor)
        self.rows, self.size = self._rows_to_cursor, self._size_to_cursor

    def _empty(self) -> None:
        self._file, self._began, self.must_land = None, None, False
        self.rows = self.size = self._rows_to_cursor = self._size_to_cursor = 0

    def _begin(self) -> None:
        self._last = max(to_micros(self._now()), self._last + _STEP)
        self._file = FileIO(self._hidden / landed_name(self._name, self._last), "a")
        self._began = self._began or time.monotonic()

    def _commit(self, hidden: Path) -> Path:
        # Not there any more where an attempt failed behind the move.
        if hidden.exists():
            instant = _instant_of(hidden.name) * 1_000
            os.utime(hidden, ns=(instant, instant))
            make_durable(hidden)
            self._landed = hidden.name
            self._write_state()
            hidden.replace(self._folder / hidden.name)
        make_durable(self._folder)
        return self._folder / hidden.name

    def _settle(self, left: Path, landed: str | None, completes: bool) -> None:
        """Land or throw away the file that the writer before did not bring to an end."""
        if left.name == landed:
            self._commit(left)
            return
        rows, size = _whole_rows(left) if completes else (0, 0)
        if not rows:
            left.unlink()
            return
        os.truncate(left, size)
        self._last = max(self._last, _instant_of(left.name))
        self.landed_before += rows
        self._commit(left)

    def _newest(self) -> int:
        """The instant of the newest file that is there, for a folder whose state is gone."""
        names = (path.name for path in self._folder.glob(f"{self._name}-*.txt"))
        return max((_instant_of(name) for name in names), default=to_micros(EPOCH))

    def _read_state(self) -> dict[str, Any]:
        path = self._hidden / _STATE
        try:
            return dict(json.loads(path.read_bytes()))
        except FileNotFoundError:
            return {}
        except (ValueError, TypeError) as error:
            raise ReceiverError(
                f"{str(path)!r} is no state of a receiver ({error}); put it back, or remove it, upon which the source "
                "is received from its beginning."
            ) from error

    def _check_same(self, of: str) -> None:
        """Refuse a cursor that is of another source; one of an earlier release does not say what it is of."""
        if self.cursor is not None and of and self._of and of != self._of:
            raise ReceiverError(
                f"the cursor in {str(self._hidden / _STATE)!r} is of {of}, and the receiver is to go on at it in "
                f"{self._of}: what that has from before would never come. Give the receiver another name, which begins "
                f'anew; or, if both are the same source, write the new one there as "of". Nothing was received.'
            )

    def _write_state(self) -> None:
        cursor = self.cursor
        path, hidden = self._hidden / _STATE, self._hidden / f".{_STATE}"
        hidden.write_text(json.dumps({"landed": self._landed, "cursor": cursor, "of": self._of}))
        make_durable(hidden)
        hidden.replace(path)
        make_durable(self._hidden)
        self._landed_cursor = cursor


def landed_name(receiver: str, micros: int) -> str:
    """The name of a file of a receiver whose first row came at an instant, in microseconds since the epoch."""
    return f"{receiver}-{from_micros(micros):{_INSTANT}}.txt"


def _instant_of(name: str) -> int:
    """Microseconds since the epoch, of a file's name."""
    text = "-".join(name.removesuffix(".txt").split("-")[-5:])
    return to_micros(datetime.strptime(text, _INSTANT).replace(tzinfo=UTC))


def _whole_rows(path: Path) -> tuple[int, int]:
    """The number of rows that are in a file to their end, and their bytes."""
    rows = size = offset = 0
    with path.open("rb") as file:
        while block := file.read(_AT_ONCE):
            rows += block.count(b"\n")
            size = offset + end + 1 if (end := block.rfind(b"\n")) >= 0 else size
            offset += len(block)
    return rows, size
