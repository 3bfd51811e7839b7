"""The changes of a Postgres table, read from its log as Debezium reads them, in Debezium's envelopes.

The messages are those of "Logical Replication Message Formats" in Postgres' documentation, version 1 of the protocol.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import psycopg

from tests.support.kafka import Broker, Message

_EPOCH_OF_POSTGRES = datetime(2000, 1, 1)
_UNAVAILABLE = "__debezium_unavailable_value"
_BIGINT, _TIMESTAMPTZ = 20, 1184


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

    def letter(self) -> str:
        return self.take(1).decode()

    def text(self) -> str:
        end = self._message.index(0, self._place)
        return (self.take(end - self._place) + self.take(1))[:-1].decode()


@dataclass
class Slot:
    """A logical replication slot for one table: what `changes` gives is not given again."""

    conninfo: str
    table: str
    _columns: dict[int, list[tuple[str, int]]] = field(default_factory=dict)
    _committed_ms: int = 0

    def __post_init__(self) -> None:
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            connection.execute(f'create publication "{self.table}_changes" for table "{self.table}"')
            connection.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [self._name(connection)])

    def changes(self) -> list[dict[str, Any]]:
        """The envelopes of all changes that were committed since."""
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            rows = connection.execute(
                "select lsn - '0/0', data from pg_logical_slot_get_binary_changes(%s, null, null, "
                "'proto_version', '1', 'publication_names', %s)",
                [self._name(connection), f"{self.table}_changes"],
            ).fetchall()
        return [envelope for lsn, data in rows for envelope in self._envelopes(int(lsn), bytes(data))]

    def drop(self) -> None:
        """A slot keeps the server's log for ever."""
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            connection.execute("select pg_drop_replication_slot(%s)", [self._name(connection)])

    def _name(self, connection: psycopg.Connection[Any]) -> str:
        return f"{self.table}_{connection.info.dbname}"

    def _envelopes(self, lsn: int, message: bytes) -> Iterator[dict[str, Any]]:
        reader = _Reader(message)
        kind = reader.letter()
        if kind == "B":
            reader.number(8)
            at = _EPOCH_OF_POSTGRES + timedelta(microseconds=reader.number(8))
            self._committed_ms = (at - datetime(1970, 1, 1)) // timedelta(milliseconds=1)
        elif kind == "R":
            relation = reader.number(4)
            reader.text(), reader.text(), reader.letter()
            self._columns[relation] = [self._column(reader) for _ in range(reader.number(2))]
        elif kind in "IUD":
            relation, part = reader.number(4), reader.letter()
            before = self._row(reader, relation) if part in "KO" else None
            if before is not None and kind == "U":
                part = reader.letter()
            after = None if kind == "D" else self._row(reader, relation)
            yield {
                "op": {"I": "c", "U": "u", "D": "d"}[kind],
                "before": before,
                "after": after,
                "ts_ms": self._committed_ms,
                "source": {"connector": "postgresql", "lsn": lsn, "ts_ms": self._committed_ms, "table": self.table},
            }

    def _column(self, reader: _Reader) -> tuple[str, int]:
        reader.number(1)
        name, type_ = reader.text(), reader.number(4)
        reader.number(4)
        return name, type_

    def _row(self, reader: _Reader, relation: int) -> dict[str, Any]:
        columns = self._columns[relation]
        assert reader.number(2) == len(columns)
        return {name: self._value(reader, type_) for name, type_ in columns}

    def _value(self, reader: _Reader, type_: int) -> Any:
        kind = reader.letter()
        if kind == "n":
            return None
        if kind == "u":
            return _UNAVAILABLE
        text = reader.take(reader.number(4)).decode()
        if type_ == _BIGINT:
            return int(text)
        return datetime.fromisoformat(text).isoformat() if type_ == _TIMESTAMPTZ else text


@dataclass
class Connector:
    """Debezium's part between a table and a topic of one partition: each change, and after a delete a tombstone."""

    conninfo: str
    table: str
    broker: Broker
    topic: str
    _slot: Slot | None = None

    def forward(self) -> None:
        """Send what was committed since the last time; the first time that the table is there it begins with that."""
        if self._slot is None:
            with psycopg.connect(self.conninfo) as connection:
                (there,) = connection.execute("select to_regclass(%s) is not null", [self.table]).fetchone() or (False,)
            if there:
                self.broker.create(self.topic)
                self._slot = Slot(self.conninfo, self.table)
            return
        self.broker.send(self.topic, [message for change in self._slot.changes() for message in _messages(change)])

    def drop(self) -> None:
        """Let the server forget it, if it has begun."""
        if self._slot is not None:
            self._slot.drop()


def _messages(change: dict[str, Any]) -> Iterator[Message]:
    key = json.dumps({"id": (change["after"] or change["before"])["id"]}).encode()
    yield Message(json.dumps(change).encode(), key)
    if change["op"] == "d":
        yield Message(None, key)
