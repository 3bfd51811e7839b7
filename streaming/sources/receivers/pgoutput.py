"""The messages by which Postgres tells the changes of its tables, as its plugin `pgoutput` writes them.

They are those of "Logical Replication Message Formats" in the documentation of Postgres, version 1 of the protocol.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Literal

_EPOCH = datetime(2000, 1, 1)
_UNIX_EPOCH = datetime(1970, 1, 1)


class Unchanged(Enum):
    """The value of a column that was too large to be logged again, as the change left it as it was."""

    UNCHANGED = "unchanged"


Value = str | Unchanged | None
"""A value as Postgres writes it as text."""


Operation = Literal["I", "U", "D"]
_OPERATIONS: dict[str, Operation] = {"I": "I", "U": "U", "D": "D"}


@dataclass(frozen=True)
class Begin:
    """The begin of a transaction whose commit is at `commit` in the log, at `at_ms`, milliseconds since the epoch."""

    commit: int
    at_ms: int


@dataclass(frozen=True)
class Commit:
    """The end of a transaction; the log goes on at `end`."""

    end: int


@dataclass(frozen=True)
class Relation:
    """A table by its number, with the name and the number of the type of each column."""

    number: int
    schema: str
    name: str
    columns: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Change:
    """A row of a table that was inserted, updated or deleted: `before` and `after` by the order of its columns.

    `before` is None where nothing is told of it; where `has_all_before` is False, it has the key alone.
    """

    operation: Operation
    relation: int
    before: tuple[Value, ...] | None
    after: tuple[Value, ...] | None
    has_all_before: bool = False


@dataclass(frozen=True)
class Truncation:
    """All rows of some tables were removed at once."""

    relations: tuple[int, ...]


def message_of(data: bytes) -> Begin | Commit | Relation | Change | Truncation | None:
    """A message; None for one of a kind that concerns no row."""
    reader = _Reader(data)
    kind = reader.letter()
    if kind == "B":
        commit = reader.unsigned(8)
        at = _EPOCH + timedelta(microseconds=reader.number(8))
        return Begin(commit, (at - _UNIX_EPOCH) // timedelta(milliseconds=1))
    if kind == "C":
        reader.take(1 + 8)
        return Commit(reader.unsigned(8))
    if kind == "R":
        number, schema, name = reader.unsigned(4), reader.text(), reader.text()
        reader.letter()
        return Relation(number, schema, name, tuple(reader.column() for _ in range(reader.number(2))))
    if kind == "T":
        tables = reader.number(4)
        reader.take(1)
        return Truncation(tuple(reader.unsigned(4) for _ in range(tables)))
    operation = _OPERATIONS.get(kind)
    if operation is not None:
        relation, part = reader.unsigned(4), reader.letter()
        before = reader.row() if part in "KO" else None
        if before is not None and operation == "U":
            reader.letter()
        after = None if operation == "D" else reader.row()
        return Change(operation, relation, before, after, part == "O")
    return None


class _Reader:
    """Numbers and texts of a message, one after the other."""

    def __init__(self, message: bytes) -> None:
        self._message = message
        self._place = 0

    def take(self, length: int) -> bytes:
        taken = self._message[self._place : self._place + length]
        self._place += length
        return taken

    def number(self, length: int) -> int:
        return int.from_bytes(self.take(length), "big", signed=True)

    def unsigned(self, length: int) -> int:
        return int.from_bytes(self.take(length), "big")

    def letter(self) -> str:
        return self.take(1).decode()

    def text(self) -> str:
        end = self._message.index(0, self._place)
        return (self.take(end - self._place) + self.take(1))[:-1].decode()

    def column(self) -> tuple[str, int]:
        self.take(1)
        name, type_ = self.text(), self.unsigned(4)
        self.take(4)
        return name, type_

    def row(self) -> tuple[Value, ...]:
        return tuple(self.value() for _ in range(self.number(2)))

    def value(self) -> Value:
        kind = self.letter()
        if kind == "n":
            return None
        if kind == "u":
            return Unchanged.UNCHANGED
        return self.take(self.number(4)).decode()
