"""Bytes as they come from a connection, cut into lines."""

from __future__ import annotations

from streaming.sources.receivers.connector import Received


class LineCutter:
    """Keeps the line that is not complete yet; one that grows beyond `longest` bytes is refused, whole, and counted."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._unfinished = b""
        self._skipping = False

    def take(self, chunk: bytes) -> Received:
        """The lines that are complete now, without their ends (LF or CR LF)."""
        *complete, self._unfinished = (self._unfinished + chunk).split(b"\n")
        refused = 0
        if complete and self._skipping:
            # The end of a line that was refused when it grew too long.
            complete, self._skipping = complete[1:], False
        rows = [line.removesuffix(b"\r") for line in complete]
        taken = tuple(row for row in rows if len(row) <= self._longest)
        refused += len(rows) - len(taken)
        if self._skipping:
            self._unfinished = b""
        elif len(self._unfinished.removesuffix(b"\r")) > self._longest:
            self._unfinished, self._skipping = b"", True
            refused += 1
        return Received(taken, refused=refused)

    def end(self) -> Received:
        """The rest behind the last line end: the other side may have ended without one."""
        rest, self._unfinished, self._skipping = self._unfinished.removesuffix(b"\r"), b"", False
        return Received((rest,) if rest else ())
