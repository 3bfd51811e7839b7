"""Rows into two databases of a real Postgres: in both or in neither, whatever is refused, away, killed or late."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from platform_assets.demo.feeds.local_postgres import LocalPostgres
from streaming import Lake
from streaming.base.errors import DeclarationError, ProgressError, SinkError
from streaming.sinks.postgres import Postgres
from streaming.sinks.sink import CHANGE, REVISION, Delivered, NumberedBatch, RefusedRow, Sink
from streaming.sinks.two_phase import TwoPhase
from streaming.sinks.two_phase_sink import PreparedPostgres
from tests.streaming.sinks.contract import LAWS, Arrivals, deliver
from tests.support.killed import Killed
from tests.support.postgres import Server, rows, run
from tests.support.services import starting

REFUSED = -1
PREPARED = "select gid from pg_prepared_xacts where database = current_database()"


@pytest.fixture
def databases(postgres_running: Server) -> tuple[str, str]:
    """Two of one server, empty."""
    return postgres_running.database(), postgres_running.database()


def tables(databases: tuple[str, str], **given: Any) -> TwoPhase:
    """The table `numbers` of each."""
    first, second = databases
    return TwoPhase((Postgres("numbers", connection=first, **given), Postgres("numbers", connection=second, **given)))


def connect(target: TwoPhase) -> Sink:
    return target.connect(Lake("/nowhere"), Delivered("shop/all", key=target.key, changes=bool(target.key)))


def numbers(*values: int, number: int = 0, **columns: Any) -> NumberedBatch:
    given = {"number": list(values), REVISION: [0] * len(values), **columns}
    return NumberedBatch("shop/all", 0, number, pa.table(given))


def found(databases: tuple[str, str]) -> list[list[int]]:
    """What is in each; nothing is left half done in either."""
    assert [rows(database, PREPARED) for database in databases] == [[], []]
    return [[row[0] for row in rows(database, "select number from numbers order by 1")] for database in databases]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_two_databases_keep_the_contract_of_targets(
    law: Callable[[Arrivals], None], lake: Lake, databases: tuple[str, str]
) -> None:
    run(databases[0], "create table numbers (number bigint)")
    run(databases[1], "create table numbers (number bigint check (number >= 0))")

    def arrived() -> list[int]:
        first, second = found(databases)
        assert first == second
        return first

    law(Arrivals(tables(databases), lake, arrived, REFUSED))


def test_what_one_database_refuses_is_in_neither_and_what_it_said_is_told(databases: tuple[str, str]) -> None:
    run(databases[0], "create table numbers (number bigint check (number <> 1))")
    run(databases[1], "create table numbers (number bigint unique check (number <> 2))")
    refused = deliver(connect(tables(databases)), numbers(0, 1, 2, 3, 3))
    assert [row.position for row in refused] == [1, 2, 4]
    assert ["check constraint" in row.error for row in refused] == [True, True, False]
    assert found(databases) == [[0, 3], [0, 3]]


def test_a_row_of_a_key_is_replaced_and_deleted_in_both(databases: tuple[str, str]) -> None:
    target = tables(databases, key=("number",))
    changes: dict[str, Any] = {CHANGE: ["upsert", "upsert"]}
    deliver(connect(target), numbers(1, 2, value=[10, 20], **changes))
    changes = {CHANGE: ["delete", "upsert"]}
    later = numbers(1, 2, number=1, value=[None, 21], **changes)
    deliver(connect(target), later)
    for database in databases:
        assert rows(database, "select number, value from numbers") == [(2, 21)]
        assert rows(database, "select tablename from pg_tables where schemaname = 'public' order by 1") == [
            ("numbers",),
            ("tidemark_progress",),
        ], "what was staged is gone"
    expected = later.rows.slice(1, 1)
    sink = connect(target)
    same = sink.compare(0, [expected])
    assert same is not None and (same.records, same.differing) == (1, 0)
    run(databases[1], "update numbers set value = 22")
    other = sink.compare(0, [expected])
    sink.close()
    assert other is not None and (other.records, other.differing) == (1, 1)
    assert [name.startswith(target.databases[1].address) for name in other.named] == [True]


def test_a_process_that_wakes_when_another_has_decided_commits_nothing_twice(
    databases: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All is prepared when the first process falls asleep; the second one finds it, commits it and goes on."""
    target, end = tables(databases), PreparedPostgres.end
    with monkeypatch.context() as asleep:

        def other_first(self: PreparedPostgres, name: str, *, commit: bool) -> None:
            asleep.setattr(PreparedPostgres, "end", end)
            deliver(connect(target), numbers(1))
            deliver(connect(target), numbers(2, number=1))
            end(self, name, commit=commit)

        asleep.setattr(PreparedPostgres, "end", other_first)
        with pytest.raises(SinkError, match="does not exist"):
            deliver(connect(target), numbers(1))
    assert found(databases) == [[1, 2], [1, 2]]


def test_nobody_rolls_back_what_a_process_that_is_alive_may_still_commit(
    databases: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prepared in the second database, not yet in the first, while another process looks whether it should."""
    target, prepare, refused = tables(databases), PreparedPostgres._prepare, []
    connect(target).delivered_through(0)
    monkeypatch.setattr("streaming.sinks.postgres_sink._WAITS_FOR_LOCKS", "100ms")

    def looked_at(self: PreparedPostgres, cursor: Any, name: str) -> None:
        if name.endswith(":0"):
            with pytest.raises(SinkError, match="lock timeout") as error:
                connect(target).delivered_through(0)
            refused.append(error)
        prepare(self, cursor, name)

    monkeypatch.setattr(PreparedPostgres, "_prepare", looked_at)
    deliver(connect(target), numbers(1))
    assert len(refused) == 1 and found(databases) == [[1], [1]]


@pytest.mark.parametrize("ended", ["commit prepared", "rollback prepared"])
def test_a_transaction_that_somebody_ended_by_hand_is_told_and_nothing_more_is_delivered(
    ended: str, databases: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tables(databases)
    with monkeypatch.context() as dies, pytest.raises(Killed):
        dies.setattr(PreparedPostgres, "end", _killed)
        deliver(connect(target), numbers(1))
    ((name,),) = rows(databases[1], PREPARED)
    with psycopg.connect(databases[1], autocommit=True) as connection:
        connection.execute(sql.SQL(f"{ended} {{}}").format(name))
    if ended == "rollback prepared":
        # The first database is not committed then, and the batch is sent again.
        deliver(connect(target), numbers(1))
        assert found(databases) == [[1], [1]]
        return
    with pytest.raises(ProgressError, match=r"do not have the same batches: .* has batch -1, .* has batch 0"):
        deliver(connect(target), numbers(1))


@pytest.fixture
def other_server() -> Iterator[LocalPostgres]:
    """One as it is installed, without prepared transactions."""
    folder = Path(tempfile.mkdtemp(prefix="tidemark-postgres-"))
    folder.chmod(0o755)
    server = LocalPostgres(folder, {"max_prepared_transactions": "0"})
    with starting("Postgres"):
        server.start()
    yield server
    server.stop()
    shutil.rmtree(folder)


def test_while_one_server_is_away_or_cannot_prepare_neither_has_a_row(
    postgres: str, other_server: LocalPostgres
) -> None:
    databases = (postgres, other_server.connection())
    with pytest.raises(SinkError, match="Set max_prepared_transactions of the server to at least the number of"):
        deliver(connect(tables(databases)), numbers(1))
    assert rows(postgres, PREPARED) == []
    other_server.settings = {}
    other_server.kill()
    with pytest.raises(SinkError, match="The batch is sent again by itself"):
        deliver(connect(tables(databases)), numbers(1))
    assert rows(postgres, "select to_regclass('numbers')") == [(None,)]
    other_server.start()
    assert deliver(connect(tables(databases)), numbers(1)) == []
    assert found(databases) == [[1], [1]]


def test_databases_that_cannot_be_written_together_are_refused() -> None:
    one, other = Postgres("a", connection="dbname=one"), Postgres("b", connection="dbname=other", key=("id",))
    with pytest.raises(DeclarationError, match=r"are \['dbname=one'\]; give two or more"):
        TwoPhase((one,))
    with pytest.raises(DeclarationError, match="each with a connection of its own"):
        TwoPhase((one, Postgres("b", connection="dbname=one")))
    with pytest.raises(DeclarationError, match=r"different keys: \[\(\), \('id',\)\]; give each the same"):
        TwoPhase((one, other))
    with pytest.raises(DeclarationError, match=r"each of databases of TwoPhase"):
        TwoPhase((one, "dbname=other"))  # type: ignore[arg-type]


def test_a_refused_row_says_where_it_was_refused(databases: tuple[str, str]) -> None:
    run(databases[1], "create table numbers (number bigint check (number >= 0))")
    target = tables(databases)
    (refused,) = deliver(connect(target), numbers(1, REFUSED))
    assert refused == RefusedRow(1, refused.error) and refused.error.startswith(f"{target.databases[1].address}: ")


def _killed(*args: Any, **given: Any) -> None:
    raise Killed
