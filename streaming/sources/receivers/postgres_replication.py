"""A logical replication slot of Postgres: made, and read from a place on, with the rows that were there before it."""

from __future__ import annotations

import base64
import json
import logging
import select
import struct
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import psycopg
from psycopg import pq, sql
from psycopg.conninfo import make_conninfo

from streaming.base import ReceiverError
from streaming.sources.receivers.connector import IDLE, Received
from streaming.sources.receivers.pgoutput import (
    Begin,
    Change,
    Commit,
    Relation,
    Truncation,
    Unchanged,
    Value,
    message_of,
)

_log = logging.getLogger("tidemark")

UNAVAILABLE = "__debezium_unavailable_value"
"""Stands for a value that was not logged, in Debezium's envelopes."""
_AT_ONCE = 1_000
"""Rows in memory."""
_TELLS_EVERY = 10.0
"""Seconds after which a server is told how far it is, that has nothing to tell of the table; it waits for a minute."""
_FREED_WITHIN = 5.0
"""Seconds that a server may take to see that the connection is gone that has read the slot."""
_LOOKS_EVERY = 0.1
_FILTERS_SINCE = 150_000
"""The version of the server since which a publication may leave out rows and columns."""
_AS_TEXT = {
    "client_encoding": "UTF8",
    "datestyle": "ISO",
    "timezone": "UTC",
    "bytea_output": "hex",
    "extra_float_digits": "3",
}
"""Settings by which a server writes values."""

_BOOLEAN, _BYTEA, _TIMESTAMP, _TIMESTAMPTZ = 16, 17, 1114, 1184
_NUMBERS = {20, 21, 23, 26, 700, 701, 1700}
"""The types that JSON has as numbers: bigint, smallint, int, oid, real, double and numeric."""


@dataclass(frozen=True)
class Replication:
    """A table that is followed by a slot and a publication; `address` names it to people."""

    connection: str
    schema: str
    name: str
    slot: str
    publication: str
    address: str


@dataclass(frozen=True)
class Place:
    """The progress of a receiver in a table: all of transactions that end before `lsn`, a place in the server's log.

    Of a transaction whose commit is at `commit` the first `changes`, where it came in part. While the rows are received
    that were there at first, `snapshot` is the place in the log that they are given, and `after` the key of the last
    one. `columns`: names and numbers of types of the table. `changed`: where the last transaction ends that has changed
    the table, on the `timeline` of the server `system`; an earlier release kept neither.
    """

    lsn: int
    commit: int = 0
    changes: int = 0
    snapshot: int | None = None
    after: tuple[str, ...] | None = None
    columns: tuple[tuple[str, int], ...] = ()
    changed: int = 0
    system: str = ""
    timeline: int = 0

    @classmethod
    def of(cls, cursor: Any) -> Place | None:
        """The place that was landed."""
        if cursor is None:
            return None
        after = cursor["after"]
        columns = tuple((name, number) for name, number in cursor["columns"])
        known = {"changed": cursor["lsn"], **cursor}
        return cls(**{**known, "after": None if after is None else tuple(after), "columns": columns})

    def as_json(self) -> dict[str, Any]:
        """The place as it is landed."""
        return json.loads(json.dumps(asdict(self)))

    def resumed(self, server: Server) -> Place | None:
        """The place on a server as it is now; None where it does not have all that has landed.

        A server that was restored, or a standby that has taken over, may be behind what another has sent. Postgres
        would pass over all changes from there up to `lsn` without a word.
        """
        if self.system and self.system != server.system:
            return None
        ends = server.switched.get(self.timeline, 0) if self.timeline not in (0, server.timeline) else server.flushed
        if max(self.changed, self.commit if self.changes else 0) > ends:
            return None
        return replace(self, lsn=min(self.lsn, ends), system=server.system, timeline=server.timeline)


@dataclass(frozen=True)
class Server:
    """The server `system` on its `timeline`, which has written its log to disk up to `flushed`.

    `switched`: where the timelines before it have ended, of which it goes on.
    """

    system: str
    timeline: int
    flushed: int
    switched: Mapping[int, int]


@dataclass(frozen=True)
class _Slot:
    plugin: str
    database: str
    restart: int
    confirmed: int
    status: str | None


@dataclass(frozen=True)
class _Table:
    schema: str
    name: str
    key: tuple[str, ...]
    columns: tuple[tuple[str, int], ...]
    has_partitions: bool


def received(declared: Replication, cursor: Any) -> Generator[Received, None, None]:
    """The rows of a table from a place on, in portions.

    Raises:
        ReceiverError: the server is away, the table cannot be followed, or changes are lost.
    """
    with _reaching(declared), ExitStack() as open_connections:
        server = psycopg.connect(declared.connection, autocommit=True)
        open_connections.callback(server.close)
        replicating = make_conninfo(declared.connection, replication="database")
        replication = psycopg.connect(replicating, autocommit=True)
        open_connections.callback(replication.close)
        for connection in (server, replication):
            for name, value in _AS_TEXT.items():
                connection.execute(sql.SQL("set {} to {}").format(sql.Identifier(name), sql.Literal(value)))
        table = _table(server, declared)
        _check_publication(server, declared, table)
        place, snapshot = _begun(server, replication, declared, Place.of(cursor))
        yield Received()
        if place.snapshot is not None:
            _tell_columns(declared, place.columns, table.columns)
            place = yield from _rows_there(declared, table, replace(place, columns=table.columns), snapshot)
        _wait_until_free(server, declared)
        yield from _Following(server, replication, declared, table, place).received()


@contextmanager
def _reaching(declared: Replication) -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        text = str(error).strip().partition("\n")[0]
        raise ReceiverError(f"{declared.address}: the server is away, or refuses ({text}).") from error


def _begun(
    server: psycopg.Connection[Any],
    replication: psycopg.Connection[Any],
    declared: Replication,
    place: Place | None,
) -> tuple[Place, str | None]:
    """The place to go on from, and the name of the snapshot of the table at a slot that was made just now.

    Raises:
        ReceiverError: the slot is gone, was read by somebody else, or is of another kind.
    """
    slot, snapshot, now = _slot(server, declared), None, _server(replication)
    anew = (
        f"Land again from a beginning: remove the file .<receiver>/state.json of the landing folder, drop the slot "
        f"{declared.slot!r} where it is there, and declare the stream by another name, as rows that were deleted "
        "meanwhile would stand in this one."
    )
    if slot is None:
        if place is not None:
            raise ReceiverError(f"{declared.address}: the slot is gone, and with it what was changed since. {anew}")
        # Commands of the protocol are known in capitals alone.
        # Without options it exports a snapshot, and servers before version 15 know none in parentheses.
        command = sql.SQL("CREATE_REPLICATION_SLOT {} LOGICAL pgoutput")
        made = replication.execute(command.format(sql.Identifier(declared.slot))).fetchone()
        snapshot = made[2] if made else None
        slot = _slot(server, declared)
        assert slot is not None
    if slot.plugin != "pgoutput" or slot.database != server.info.dbname:
        raise ReceiverError(
            f"{declared.address}: the slot is of plugin {slot.plugin} and database {slot.database}; name another one, "
            "which is made, or one of pgoutput and this database."
        )
    if slot.status == "lost":
        raise ReceiverError(f"{declared.address}: the server has removed what it had kept for the slot. {anew}")
    if place is None:
        # No change of the slot is older than its restart, and none that came by another slot before is newer.
        begun = Place(slot.confirmed, snapshot=slot.restart, changed=slot.confirmed)
        return replace(begun, system=now.system, timeline=now.timeline), snapshot
    resumed = place.resumed(now)
    if resumed is None:
        raise ReceiverError(
            f"{declared.address}: the landing folder has changes up to {_text_of(place.changed)}, which the server "
            f"does not have: it was restored, or a standby that was behind has taken over, and its log is on timeline "
            f"{now.timeline} up to {_text_of(now.flushed)}. {anew}"
        )
    if slot.confirmed > place.lsn:
        raise ReceiverError(
            f"{declared.address}: the slot was read up to {_text_of(slot.confirmed)}, and the landing folder has "
            f"changes up to {_text_of(place.lsn)}: somebody else has read it, or the folder is an older copy. {anew}"
        )
    return resumed, None


def _server(replication: psycopg.Connection[Any]) -> Server:
    """The server as it tells of itself by the protocol of replication, which a standby speaks, too."""
    system, timeline, flushed, _ = replication.execute("IDENTIFY_SYSTEM").fetchone() or ("", 0, "0/0", None)
    told = replication.execute(f"TIMELINE_HISTORY {timeline}").fetchone() if int(timeline) > 1 else None
    content = bytes(told[1]).decode() if told and not isinstance(told[1], str) else told[1] if told else ""
    return Server(str(system), int(timeline), _lsn_of(flushed), switched_in(content))


def switched_in(history: str) -> dict[int, int]:
    """Where timelines have ended, by the history file of a later one (Postgres, "Timelines" of continuous archiving).

    A line has the number, the place of the switch and the reason, each behind a tab; `#` begins a comment.
    """
    lines = (line.split("\t") for line in history.splitlines() if line.strip() and not line.startswith("#"))
    return {int(number): _lsn_of(place) for number, place, *_ in lines}


def _slot(server: psycopg.Connection[Any], declared: Replication) -> _Slot | None:
    row = server.execute(
        "select plugin, database, (restart_lsn - '0/0')::bigint, (confirmed_flush_lsn - '0/0')::bigint, wal_status "
        "from pg_replication_slots where slot_name = %s",
        [declared.slot],
    ).fetchone()
    if row is None:
        return None
    plugin, database, restart, confirmed, status = row
    return _Slot(plugin or "none", database or "none", restart or 0, confirmed or 0, status)


def _wait_until_free(server: psycopg.Connection[Any], declared: Replication) -> None:
    """Wait for the server to see that the connection before this one is gone."""
    deadline = time.monotonic() + _FREED_WITHIN
    query = "select active from pg_replication_slots where slot_name = %s"
    while (server.execute(query, [declared.slot]).fetchone() or (False,))[0]:
        if time.monotonic() > deadline:
            raise ReceiverError(f"{declared.address}: another connection reads the slot; end it, or name another slot.")
        time.sleep(_LOOKS_EVERY)


def _table(server: psycopg.Connection[Any], declared: Replication) -> _Table:
    """The table as it is now.

    Raises:
        ReceiverError: it cannot be followed.
    """
    schema, name = declared.schema, declared.name
    (level,) = server.execute("show wal_level").fetchone() or ("unknown",)
    if level != "logical":
        raise ReceiverError(
            f"{declared.address}: the server has wal_level = {level}; set it to logical and start it again."
        )
    there = server.execute(
        "select c.oid, c.relreplident, c.relkind = 'p' from pg_class c join pg_namespace n on n.oid = c.relnamespace "
        "where n.nspname = %s and c.relname = %s and c.relkind in ('r', 'p')",
        [schema, name],
    ).fetchone()
    if there is None:
        raise ReceiverError(f"{declared.address}: there is no such table; create it, or correct its name.")
    number, identity, has_partitions = there
    columns = server.execute(
        "select attname, atttypid::bigint from pg_attribute where attrelid = %s and attnum > 0 and not attisdropped "
        "and attgenerated = '' order by attnum",
        [number],
    ).fetchall()
    key = server.execute(
        "select a.attname from pg_index i cross join unnest(i.indkey) with ordinality as k(number, place) "
        "join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.number "
        "where i.indrelid = %s and i.indisprimary order by k.place",
        [number],
    ).fetchall()
    if not key or identity not in ("d", "f"):
        raise ReceiverError(
            f"{declared.address}: the server does not log the primary key of what is updated and deleted; give the "
            "table a primary key, and its replica identity default or full."
        )
    return _Table(
        schema,
        name,
        tuple(column for (column,) in key),
        tuple((column, type_) for column, type_ in columns),
        has_partitions,
    )


def _check_publication(server: psycopg.Connection[Any], declared: Replication, table: _Table) -> None:
    """Make the publication that is not there, and refuse one that leaves out changes of the table.

    Raises:
        ReceiverError: with what it leaves out.
    """
    name = declared.publication
    query = "select pubinsert and pubupdate and pubdelete from pg_publication where pubname = %s"
    whole = server.execute(query, [name]).fetchone()
    if whole is None:
        # Changes of a partition come under the name of the table that was declared.
        made = sql.SQL("create publication {} for table {}.{} with (publish_via_partition_root = true)")
        server.execute(made.format(*map(sql.Identifier, (name, table.schema, table.name))))
        return
    query = "select 1 from pg_publication_tables where pubname = %s and schemaname = %s and tablename = %s"
    values: list[object] = [name, table.schema, table.name]
    if server.info.server_version >= _FILTERS_SINCE:
        query += " and rowfilter is null and attnames @> %s::name[]"
        values.append([column for column, _ in table.columns])
    if not whole[0] or server.execute(query.encode(), values).fetchone() is None:
        raise ReceiverError(
            f"{declared.address}: the publication {name!r} is not of all rows, columns, inserts, updates and deletes "
            "of the table; alter it (of a table with partitions it needs publish_via_partition_root = true), or name "
            "another one."
        )


def _rows_there(
    declared: Replication, table: _Table, place: Place, snapshot: str | None
) -> Generator[Received, None, Place]:
    """The rows behind the place in order of their key, as of the snapshot if there is one; returns the place behind."""
    envelopes, lsn = _Envelopes(declared, table), place.snapshot
    assert lsn is not None
    names = [name for name, _ in table.columns]
    of_key = [names.index(name) for name in table.key]
    key = sql.SQL(", ").join(map(sql.Identifier, table.key))
    columns = sql.SQL(", ").join(map(sql.Identifier, names))
    with psycopg.connect(declared.connection) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        if snapshot is not None:
            connection.execute(sql.SQL("set transaction snapshot {}").format(sql.Literal(snapshot)))
        # A policy would leave out rows in silence; without this the server says that there is one.
        for name, value in {**_AS_TEXT, "row_security": "off"}.items():
            connection.execute(sql.SQL("set local {} to {}").format(sql.Identifier(name), sql.Literal(value)))
        while True:
            behind: sql.Composable = sql.SQL("")
            if place.after is not None:
                marks = sql.SQL(", ").join([sql.Placeholder()] * len(table.key))
                behind = sql.SQL("where ({}) > ({})").format(key, marks)
            # Changes of tables that inherit from this one come under their own names.
            only = sql.SQL("" if table.has_partitions else "only")
            query = sql.SQL("select {} from {} {}.{} {} order by {} limit {}").format(
                columns,
                only,
                sql.Identifier(table.schema),
                sql.Identifier(table.name),
                behind,
                key,
                sql.Literal(_AT_ONCE),
            )
            result = connection.execute(query, place.after).pgresult
            assert result is not None
            rows = [_texts(result, number, len(names)) for number in range(result.ntuples)]
            if not rows:
                break
            place = replace(place, after=tuple(str(rows[-1][column]) for column in of_key))
            yield Received([envelopes.envelope("r", None, row, lsn) for row in rows], cursor=place.as_json())
    done = replace(place, snapshot=None, after=None)
    yield Received(cursor=done.as_json())
    return done


def _texts(result: Any, row: int, columns: int) -> tuple[Value, ...]:
    values = (result.get_value(row, column) for column in range(columns))
    return tuple(None if value is None else value.decode() for value in values)


class _Envelopes:
    """Writes rows as Debezium does: the place in the log by which changes of a key are in order is in `source`."""

    def __init__(self, declared: Replication, table: _Table) -> None:
        self.columns = table.columns
        self._table = table
        self._slot = declared.slot

    def changes(self, change: Change, lsn: int, at_ms: int) -> list[bytes]:
        """The envelopes of a change: two where the primary key has another value."""
        before, after = change.before, change.after
        if change.operation == "D":
            return [self.envelope("d", before, None, lsn, at_ms)]
        assert after is not None
        if before is not None and change.has_all_before:
            pairs = zip(before, after, strict=True)
            after = tuple(old if new is Unchanged.UNCHANGED else new for old, new in pairs)
        if change.operation == "I":
            return [self.envelope("c", None, after, lsn, at_ms)]
        if before is not None and self._key(before) != self._key(after):
            return [self.envelope("d", before, None, lsn, at_ms), self.envelope("c", None, after, lsn, at_ms)]
        return [self.envelope("u", before if change.has_all_before else None, after, lsn, at_ms)]

    def truncation(self, lsn: int, at_ms: int) -> bytes:
        """The envelope of a truncation."""
        return self.envelope("t", None, None, lsn, at_ms)

    def envelope(
        self,
        operation: str,
        before: Sequence[Value] | None,
        after: Sequence[Value] | None,
        lsn: int,
        at_ms: int | None = None,
    ) -> bytes:
        """One envelope; without `at_ms` it is of a row that was there at first, as of now."""
        at = int(time.time() * 1000) if at_ms is None else at_ms
        source = {
            "connector": "postgresql",
            "name": self._slot,
            "schema": self._table.schema,
            "table": self._table.name,
            "lsn": lsn,
            "ts_ms": at,
            "snapshot": at_ms is None,
        }
        text = (
            f'{{"op":"{operation}","before":{self._row(before)},"after":{self._row(after)},'
            f'"source":{json.dumps(source)},"ts_ms":{at}}}'
        )
        return text.encode()

    def _key(self, row: Sequence[Value]) -> tuple[Value, ...]:
        names = [name for name, _ in self.columns]
        return tuple(row[names.index(name)] for name in self._table.key)

    def _row(self, row: Sequence[Value] | None) -> str:
        if row is None:
            return "null"
        values = zip(self.columns, row, strict=True)
        return f"{{{','.join(f'{json.dumps(name)}:{_as_json(value, type_)}' for (name, type_), value in values)}}}"


def _as_json(value: Value, type_: int) -> str:
    """A value of Postgres as JSON; numbers as Postgres has written them."""
    if value is None:
        return "null"
    if isinstance(value, Unchanged):
        return json.dumps(UNAVAILABLE)
    if type_ == _BOOLEAN:
        return "true" if value == "t" else "false"
    if type_ in _NUMBERS and value.lstrip("-")[:1].isdigit():
        return value
    if type_ == _BYTEA:
        return json.dumps(base64.b64encode(bytes.fromhex(value.removeprefix("\\x"))).decode())
    if type_ in (_TIMESTAMP, _TIMESTAMPTZ):
        # What Python has no instant for is told as Postgres writes it, and judged by the format.
        with suppress(ValueError):
            at = datetime.fromisoformat(value)
            # One without a zone is told as of UTC, as Debezium does.
            return json.dumps((at if at.tzinfo else at.replace(tzinfo=UTC)).isoformat())
    return json.dumps(value)


def _tell_columns(declared: Replication, known: Sequence[tuple[str, int]], now: Sequence[tuple[str, int]]) -> None:
    """Tell of columns that are others than those that were known; at first none are."""
    if known and known != now:
        before, after = (", ".join(name for name, _ in columns) for columns in (known, now))
        _log.warning("%s: the table has changed: columns were %s, and are %s now.", declared.address, before, after)


class _Following:
    """Reads a slot from a place on; what has landed is confirmed to the server, which then forgets it."""

    def __init__(
        self,
        server: psycopg.Connection[Any],
        replication: psycopg.Connection[Any],
        declared: Replication,
        table: _Table,
        place: Place,
    ) -> None:
        self._server = server
        self._connection = replication.pgconn
        self._declared = declared
        self._table = table
        self._envelopes = _Envelopes(declared, table)
        self._place = self._given = place
        self._begun: Begin | None = None
        self._changes = 0
        self._repeated = (place.commit, place.changes)
        self._number: int | None = None
        self._landed = 0
        self._told_at = time.monotonic()

    def received(self) -> Generator[Received, None, None]:
        """The changes in portions; where there are none, how far the server is."""
        command = sql.SQL("START_REPLICATION SLOT {} LOGICAL {} (proto_version '1', publication_names {})").format(
            sql.Identifier(self._declared.slot),
            sql.SQL(_text_of(self._place.lsn)),
            sql.Literal(sql.Identifier(self._declared.publication).as_string(self._server)),
        )
        result = self._connection.exec_(command.as_bytes(self._server))
        if result.status != pq.ExecStatus.COPY_BOTH:
            raise ReceiverError(f"{self._declared.address}: the slot cannot be read ({_said(result)}).")
        while True:
            rows = list[bytes]()
            deadline = time.monotonic() + IDLE
            while len(rows) < _AT_ONCE:
                message = self._next(0 if rows else deadline - time.monotonic())
                if message is None:
                    break
                rows += self._rows_of(message)
            yield self._portion(rows)

    def _portion(self, rows: list[bytes]) -> Received:
        behind = None
        now = time.monotonic()
        is_due = now - self._told_at > _TELLS_EVERY
        if is_due:
            self._told_at = now
            self._tell()
            behind = self._behind()
        if not rows and (self._place == self._given or not is_due):
            return Received(behind=behind)
        self._given = self._place
        landed: Callable[[], None] = partial(self._confirm, self._place.lsn)
        return Received(rows, cursor=self._place.as_json(), landed=landed, behind=behind)

    def _next(self, within: float) -> bytes | None:
        """The next message of the stream; None where none comes within so many seconds.

        Raises:
            ReceiverError: the server has ended the stream.
        """
        deadline = time.monotonic() + within
        while True:
            length, data = self._connection.get_copy_data(1)
            if length > 0:
                return bytes(data)
            if length < 0:
                result = self._connection.get_result()
                raise ReceiverError(f"{self._declared.address}: the server has ended the stream ({_said(result)}).")
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._connection.socket], [], [], left)[0]:
                return None
            self._connection.consume_input()

    def _rows_of(self, message: bytes) -> list[bytes]:
        if message[:1] == b"k":
            end, _, wants_answer = struct.unpack(">QQB", message[1:18])
            if self._begun is None:
                self._place = replace(self._place, lsn=max(self._place.lsn, end))
            if wants_answer:
                self._tell()
            return []
        (lsn,) = struct.unpack(">Q", message[1:9])
        told = message_of(message[25:])
        if isinstance(told, Begin):
            self._begun, self._changes = told, 0
        elif isinstance(told, Commit):
            self._begun = None
            changed = told.end if self._changes else self._place.changed
            lsn = max(self._place.lsn, told.end)
            self._place = replace(self._place, lsn=lsn, commit=0, changes=0, snapshot=None, after=None, changed=changed)
        elif isinstance(told, Relation) and (told.schema, told.name) == (self._table.schema, self._table.name):
            self._is_now(told)
        elif isinstance(told, Change) and told.relation == self._number:
            return self._changed(lambda at: self._envelopes.changes(told, lsn, at))
        elif isinstance(told, Truncation) and self._number in told.relations:
            _log.warning(
                "%s: the table was truncated; that is landed as a row of its own, which the format rejects, and what "
                "was in the table stands in the stream until it is taken back.",
                self._declared.address,
            )
            return self._changed(lambda at: [self._envelopes.truncation(lsn, at)])
        return []

    def _changed(self, rows: Callable[[int], list[bytes]]) -> list[bytes]:
        """The rows of a change, but for one that had come before this connection."""
        assert self._begun is not None
        self._changes += 1
        commit, repeated = self._repeated
        if self._begun.commit == commit and self._changes <= repeated:
            return []
        self._place = replace(self._place, commit=self._begun.commit, changes=self._changes)
        return rows(self._begun.at_ms)

    def _is_now(self, relation: Relation) -> None:
        """Take note of the columns that the following changes have, and tell of those that are others."""
        _tell_columns(self._declared, self._place.columns, relation.columns)
        self._number = relation.number
        self._envelopes.columns = relation.columns
        self._place = replace(self._place, columns=relation.columns)

    def _confirm(self, lsn: int) -> None:
        """Let the server forget what was before; it is told again where it does not hear this."""
        self._landed = max(self._landed, lsn)
        with suppress(psycopg.Error):
            self._tell()

    def _tell(self) -> None:
        place = self._landed
        answer = struct.pack(">QQQQB", max(place, self._place.lsn), place, place, 0, 0)
        self._connection.put_copy_data(b"r" + answer)
        self._connection.flush()

    def _behind(self) -> int | None:
        """Bytes of the server's log that the slot has not confirmed."""
        query = (
            "select (pg_current_wal_lsn() - confirmed_flush_lsn)::bigint from pg_replication_slots where slot_name = %s"
        )
        row = self._server.execute(query, [self._declared.slot]).fetchone()
        return None if row is None else int(row[0])


def _said(result: Any) -> str:
    return "without a word" if result is None else result.error_message.decode(errors="replace").strip()


def _text_of(lsn: int) -> str:
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def _lsn_of(text: str) -> int:
    high, low = text.split("/")
    return int(high, 16) << 32 | int(low, 16)
