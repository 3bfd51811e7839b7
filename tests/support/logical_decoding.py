"""The changes of a Postgres table, read from its log as Debezium reads them, in Debezium's envelopes.

Messages are decoded as a receiver of Postgres does; what is made of them here is what Debezium makes of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import psycopg

from streaming.sources.receivers.pgoutput import Begin, Change, Relation, Unchanged, Value, message_of
from tests.support.kafka import Broker, Message

_UNAVAILABLE = "__debezium_unavailable_value"
_BIGINT, _TIMESTAMPTZ = 20, 1184


@dataclass
class Slot:
    """A logical replication slot for one table: what `changes` gives is not given again."""

    conninfo: str
    table: str
    _columns: dict[int, tuple[tuple[str, int], ...]] = field(default_factory=dict)
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

    def _envelopes(self, lsn: int, data: bytes) -> Iterator[dict[str, Any]]:
        message = message_of(data)
        if isinstance(message, Begin):
            self._committed_ms = message.at_ms
        elif isinstance(message, Relation):
            self._columns[message.number] = message.columns
        elif isinstance(message, Change):
            yield {
                "op": {"I": "c", "U": "u", "D": "d"}[message.operation],
                "before": self._row(message, message.before),
                "after": self._row(message, message.after),
                "ts_ms": self._committed_ms,
                "source": {"connector": "postgresql", "lsn": lsn, "ts_ms": self._committed_ms, "table": self.table},
            }

    def _row(self, message: Change, row: Sequence[Value] | None) -> dict[str, Any] | None:
        columns = self._columns[message.relation]
        if row is None:
            return None
        return {name: _value(value, type_) for (name, type_), value in zip(columns, row, strict=True)}


def _value(value: Value, type_: int) -> Any:
    if value is None:
        return None
    if isinstance(value, Unchanged):
        return _UNAVAILABLE
    if type_ == _BIGINT:
        return int(value)
    return datetime.fromisoformat(value).isoformat() if type_ == _TIMESTAMPTZ else value


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
