"""A table of a real Postgres, received by a slot: nothing is lost or doubled, whatever dies and whoever writes."""

from __future__ import annotations

import json
import random
import re
import time
from collections import Counter
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

import psycopg
import pytest

from platform_assets.texts.receivers import receiver_line
from streaming import Lake, PostgresChanges, Received, Reception
from streaming.base.errors import DeclarationError, ReceiverError
from streaming.sources.receivers import postgres_replication
from streaming.sources.receivers.postgres_replication import Place, Server, switched_in
from tests.streaming.sources.receivers.contract import check_connector
from tests.support.postgres import rows, run
from tests.support.receiving import landed_rows, received, running
from tests.support.seeds import draws
from tests.support.waiting import until


@pytest.fixture
def database(postgres: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A database with a table of orders, whose slots are dropped at the end."""
    run(postgres, "create table orders (id bigint primary key, country text, amount numeric(10, 2), notes text)")
    run(postgres, "alter table orders alter column notes set storage external")
    monkeypatch.setattr(postgres_replication, "IDLE", 0.05)
    monkeypatch.setattr(postgres_replication, "_TELLS_EVERY", 0.0)
    yield postgres
    with psycopg.connect(postgres, autocommit=True) as connection:
        # The server may not have seen yet that a connection is gone.
        of_here = "from pg_replication_slots where database = current_database()"
        connection.execute(f"select pg_terminate_backend(active_pid, 5000) {of_here} and active")
        connection.execute(f"select pg_drop_replication_slot(slot_name) {of_here}")


def changes_of(database: str, **given: Any) -> PostgresChanges:
    """A connector with a slot of its own: names of slots are the server's."""
    name = re.search(r"dbname=(\S+)", database)
    assert name is not None
    return PostgresChanges("orders", slot=name[1], connection=database, **given)


@dataclass
class Landing:
    """Everything that has landed, and where it goes on."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    cursor: Any = None

    def receive(self, connector: PostgresChanges, portions: int | None = None, within: float = 60) -> None:
        """Land so many portions, or all that the server's log has by now; the test fails where not in time."""
        deadline = time.monotonic() + within
        ((end,),) = rows(connector.connection, "select (pg_current_wal_flush_lsn() - '0/0')::bigint")
        with closing(connector.receive(Reception(self.cursor))) as receiving:
            for part in receiving:
                assert time.monotonic() < deadline, f"only {self.told} came, up to {self.cursor}"
                self.land(part)
                portions = None if portions is None else portions - 1
                is_done = self.cursor and self.cursor["snapshot"] is None and self.cursor["lsn"] >= end
                if portions == 0 or (portions is None and is_done):
                    return

    def land(self, part: Received) -> None:
        self.rows += map(json.loads, part.rows)
        if part.cursor is not None:
            self.cursor = json.loads(json.dumps(part.cursor))
        if part.landed is not None:
            part.landed()

    @property
    def told(self) -> list[tuple[str, Any]]:
        """What happened, and to which id."""
        return [(each["op"], (each["after"] or each["before"] or {}).get("id")) for each in self.rows]

    @property
    def standing(self) -> dict[int, dict[str, Any]]:
        """What stands, by id: the newest by its place in the log, with values that were not logged again."""
        stands: dict[int, tuple[int, dict[str, Any] | None]] = {}
        for each in self.rows:
            row, lsn = each["after"] or each["before"], each["source"]["lsn"]
            newest, before = stands.get(row["id"], (-1, None))
            if lsn >= newest:
                row = {
                    name: (before or {}).get(name) if value == postgres_replication.UNAVAILABLE else value
                    for name, value in row.items()
                }
                stands[row["id"]] = lsn, None if each["op"] == "d" else row
        return {id_: row for id_, (_, row) in sorted(stands.items()) if row is not None}


def there(database: str) -> dict[int, dict[str, Any]]:
    """The table as it is."""
    return {
        id_: {"id": id_, "country": country, "amount": None if amount is None else float(amount), "notes": notes}
        for id_, country, amount, notes in rows(database, "select id, country, amount, notes from orders order by id")
    }


@dataclass(frozen=True)
class Countries(PostgresChanges):
    """Of each envelope what happened, and the country."""

    def receive(self, reception: Reception) -> Generator[Received, None, None]:
        for part in super().receive(reception):
            told = [json.loads(row) for row in part.rows]
            yield replace(part, rows=[f"{each['op']} {each['after']['country']}".encode() for each in told])


def test_changes_of_a_table_keep_the_contract(database: str) -> None:
    run(database, "insert into orders values (1, 'DE')")
    connector = changes_of(database)
    told = Countries(connector.table, connector.slot, database)
    check_connector(told, [b"r DE", b"c FR", b"u NO"], lambda: run(database, *CHANGES))


CHANGES = ("insert into orders values (2, 'FR')", "update orders set country = 'NO' where id = 2")


def test_rows_that_were_there_come_first_then_each_change_in_the_order_of_the_log(database: str) -> None:
    run(database, "insert into orders values (1, 'DE', 1.10), (2, 'FR', null)")
    landing, connector = Landing(), changes_of(database)
    landing.receive(connector)
    run(database, "update orders set amount = 2.20 where id = 1", "delete from orders where id = 2")
    run(database, "insert into orders values (2, 'NO', 5)")
    landing.receive(connector)
    assert landing.told == [("r", 1), ("r", 2), ("u", 1), ("d", 2), ("c", 2)]
    assert landing.standing == there(database)
    places = [each["source"]["lsn"] for each in landing.rows]
    assert places == sorted(places) and places[0] == places[1] < places[2]
    update = landing.rows[2]
    assert update["after"] == {"id": 1, "country": "DE", "amount": 2.20, "notes": None}
    assert update["ts_ms"] == update["source"]["ts_ms"] > 1_700_000_000_000
    assert update["source"]["connector"] == "postgresql" and update["source"]["table"] == "orders"


def act(connection: psycopg.Connection[Any], chance: random.Random) -> None:
    """A transaction of some changes, one of which may move a row to another key, or be taken back."""
    with connection.transaction():
        for _ in range(chance.choice((1, 1, 2, 5))):
            id_, country = chance.randint(1, 60), chance.choice(("DE", "FR", "NO"))
            notes = "".join(chance.choices("abcdefgh ", k=4_000)) if chance.random() < 0.3 else None
            connection.execute(
                chance.choice(
                    (
                        "insert into orders values (%(id)s, %(country)s, 1.5, %(notes)s) on conflict do nothing",
                        "update orders set country = %(country)s where id = %(id)s",
                        "update orders set amount = amount + 1 where id = %(id)s",
                        "update orders set id = %(other)s where id = %(id)s and notes is null "
                        "and not exists (select 1 from orders where id = %(other)s)",
                        "delete from orders where id = %(id)s",
                    )
                ),
                {"id": id_, "country": country, "notes": notes, "other": chance.randint(61, 90)},
            )
        if chance.random() < 0.1:
            raise psycopg.Rollback


@pytest.mark.sampled
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_what_stands_is_the_table_whatever_dies_while_others_write(
    database: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = draws(f"postgres changes {seed}")
    monkeypatch.setattr(postgres_replication, "_AT_ONCE", 7)
    run(database, "insert into orders select n, 'DE', n, null from generate_series(1, 40) as n")
    landing, connector = Landing(), changes_of(database)
    with psycopg.connect(database, autocommit=True) as connection:
        for _ in range(12):
            with closing(connector.receive(Reception(landing.cursor))) as receiving:
                for _ in range(chance.randint(1, 5)):
                    if chance.random() < 0.7:
                        act(connection, chance)
                    part = next(receiving)
                    if chance.random() < 0.15:
                        # It dies before this portion is landed.
                        break
                    landing.land(part)
    landing.receive(connector)
    assert landing.standing == there(database)
    identities = Counter(
        json.dumps([each["source"]["lsn"], *told]) for each, told in zip(landing.rows, landing.told, strict=True)
    )
    assert max(identities.values()) == 1, "no change is landed twice"


def test_a_transaction_in_the_middle_of_which_a_process_dies_goes_on_there(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_replication, "_AT_ONCE", 10)
    landing, connector = Landing(), changes_of(database)
    landing.receive(connector)
    run(database, "insert into orders select n, 'DE', n from generate_series(1, 35) as n")
    run(database, "insert into orders values (36)")
    while len(landing.rows) < 20:
        landing.receive(connector, portions=len(landing.rows) // 10 + 2)
    assert landing.told[:20] == [("c", n) for n in range(1, 21)]
    landing.receive(connector)
    assert landing.told == [("c", n) for n in range(1, 37)]


def test_another_key_is_a_delete_and_an_insert_and_large_values_that_stay_are_marked(database: str) -> None:
    large = "x" * 5_000
    run(database, f"insert into orders values (1, 'DE', 1, '{large}')")
    landing, connector = Landing(), changes_of(database)
    landing.receive(connector)
    run(database, "update orders set country = 'FR' where id = 1")
    landing.receive(connector)
    assert landing.rows[-1]["after"]["notes"] == "__debezium_unavailable_value"
    run(database, "alter table orders replica identity full", "update orders set id = 2 where id = 1")
    landing.receive(connector)
    assert landing.told == [("r", 1), ("u", 1), ("d", 1), ("c", 2)]
    assert landing.rows[-1]["after"]["notes"] == large, "the server tells the row as it was, so nothing is missing"


def test_values_are_numbers_texts_and_instants_as_json_has_them(database: str) -> None:
    run(
        database,
        "create table kinds (id int primary key, b boolean, f double precision, nan double precision, n numeric, "
        "t text, at timestamptz, local timestamp, day date, bytes bytea, j jsonb, l int[], never timestamptz)",
    )
    values = (
        "(1, true, 0.1, 'NaN', 12345678901234567890.10, 'a \"b\"\\' || chr(10) || 'é', '2026-03-02 09:05:00.5+02', "
        "'2026-03-02 09:05', '2026-03-02', '\\x00ff', '{\"a\": 1}', '{1,2}', 'infinity')"
    )
    run(database, f"insert into kinds values {values}")
    connector = replace(changes_of(database), table="public.kinds")
    with closing(connector.receive(Reception())) as receiving:
        texts = [row.decode() for _ in range(3) for row in next(receiving).rows]
        run(database, "update kinds set id = id")
        while len(texts) < 2:
            texts += [row.decode() for row in next(receiving).rows]
    for text in texts:
        assert '"n":12345678901234567890.10,' in text, "no number goes through a double"
        assert json.loads(text)["after"] == {
            "id": 1,
            "b": True,
            "f": 0.1,
            "nan": "NaN",
            "n": 12345678901234567890.10,
            "t": 'a "b"\\\né',
            "at": "2026-03-02T07:05:00.500000+00:00",
            "local": "2026-03-02T09:05:00+00:00",
            "day": "2026-03-02",
            "bytes": "AP8=",
            "j": '{"a": 1}',
            "l": "{1,2}",
            "never": "infinity",
        }


def test_a_truncation_and_other_columns_are_told(database: str, caplog: pytest.LogCaptureFixture) -> None:
    landing, connector = Landing(), changes_of(database)
    run(database, "insert into orders values (1, 'DE')")
    landing.receive(connector)
    run(database, "alter table orders add column paid boolean")
    run(database, "alter table orders drop column amount")
    run(database, "insert into orders values (2, 'FR', null, true)")
    landing.receive(connector)
    assert landing.rows[-1]["after"] == {"id": 2, "country": "FR", "notes": None, "paid": True}
    assert "columns were id, country, amount, notes, and are id, country, notes, paid now" in caplog.text
    caplog.clear()
    run(database, "insert into orders values (3)")
    landing.receive(connector)
    assert "the table has changed" not in caplog.text, "it was told before"
    run(database, "truncate orders")
    landing.receive(connector)
    assert (landing.rows[-1]["op"], landing.rows[-1]["before"], landing.rows[-1]["after"]) == ("t", None, None)
    assert "the table was truncated" in caplog.text


def confirmed(database: str, connector: PostgresChanges) -> int:
    query = (
        f"select (confirmed_flush_lsn - '0/0')::bigint from pg_replication_slots where slot_name = '{connector.slot}'"
    )
    return int(rows(database, query)[0][0])


def test_the_server_forgets_what_has_landed_also_where_nothing_comes(database: str) -> None:
    landing, connector = Landing(), changes_of(database)
    landing.receive(connector)
    before = confirmed(database, connector)
    run(database, "insert into orders values (1)")
    with closing(connector.receive(Reception(landing.cursor))) as receiving:
        first = next(part for part in receiving if part.rows)
        [next(receiving) for _ in range(2)]
        assert confirmed(database, connector) == before, "it has not landed"
        landing.land(first)
        run(database, "create table others as select generate_series(1, 1000) as n")
        part = next(
            part for part in receiving if part.cursor and not part.rows and part.cursor["lsn"] > before + 10_000
        )
        assert part.behind is not None and part.behind > 10_000
        landing.land(part)
        for _ in range(10):
            landing.land(part := next(receiving))
        assert confirmed(database, connector) >= before + 10_000
        assert part.behind is not None and part.behind < 10_000
    run(database, "insert into orders values (2)")
    landing.receive(connector)
    assert landing.told == [("c", 1), ("c", 2)]


def test_a_place_that_moves_between_two_words_to_the_server_is_told_with_the_next(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing, connector = Landing(), changes_of(database)
    landing.receive(connector)
    before = confirmed(database, connector)
    monkeypatch.setattr(postgres_replication, "_TELLS_EVERY", 1.0)
    with closing(connector.receive(Reception(landing.cursor))) as receiving:
        next(receiving)
        run(database, "create table others as select generate_series(1, 1000) as n")

        def is_confirmed() -> bool:
            landing.land(next(receiving))
            return confirmed(database, connector) > before + 10_000

        until(is_confirmed, "confirmed")


def test_a_table_with_partitions_is_followed_as_a_whole_and_one_without_its_heirs(database: str) -> None:
    run(
        database,
        "create table parcels (id bigint, at date, primary key (id, at)) partition by range (at)",
        "create table parcels_2026 partition of parcels for values from ('2026-01-01') to ('2027-01-01')",
        "insert into parcels values (1, '2026-03-02')",
        "create table express (fee int) inherits (orders)",
        "insert into express values (7, 'DE', 1, null, 5)",
    )
    whole, landing = replace(changes_of(database), table="parcels"), Landing()
    landing.receive(whole)
    run(database, "insert into parcels values (2, '2026-03-03')", "update parcels set at = '2026-03-04' where id = 1")
    landing.receive(whole)
    assert landing.told == [("r", 1), ("c", 2), ("d", 1), ("c", 1)]
    alone, slot = Landing(), f"{whole.slot}_alone"
    alone.receive(replace(changes_of(database), slot=slot))
    assert alone.told == []


def test_what_is_lost_is_told_with_what_to_do_and_nothing_is_left_out_in_silence(database: str) -> None:
    landing, connector = Landing(), changes_of(database)
    run(database, "insert into orders values (1)")
    landing.receive(connector)
    older = landing.cursor
    run(database, "insert into orders values (2)")
    landing.receive(connector)
    with pytest.raises(ReceiverError, match=r"somebody else has read it, or the folder is an older copy"):
        next(connector.receive(Reception(older)))
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("select pg_drop_replication_slot(%s)", [connector.slot])
    with pytest.raises(ReceiverError, match=r"the slot is gone, and with it .* declare the stream by another name"):
        next(connector.receive(Reception(landing.cursor)))


def test_a_table_that_cannot_be_followed_is_refused_with_the_reason(database: str) -> None:
    connector = changes_of(database)

    def refused(match: str, **given: Any) -> None:
        with pytest.raises(ReceiverError, match=match):
            next(replace(connector, **given).receive(Reception()))

    run(database, "create table loose (id int)", "create publication part for table orders with (publish = 'insert')")
    refused("there is no such table", table="shop.orders")
    refused("give the table a primary key", table="loose")
    refused("is not of all rows, columns, inserts, updates and deletes", publication="part")
    run(database, "create publication narrow for table orders (id, country)")
    refused("is not of all rows, columns", publication="narrow")
    run(database, "create publication few for table orders where (id > 1)")
    refused("is not of all rows, columns", publication="few")
    refused("the server is away, or refuses", connection="host=127.0.0.1 port=1")
    with psycopg.connect(database, dbname="postgres", autocommit=True) as elsewhere:
        slot = f"{connector.slot}_elsewhere"
        elsewhere.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [slot])
        refused("the slot is of plugin pgoutput and database postgres", slot=slot)
        elsewhere.execute("select pg_drop_replication_slot(%s)", [slot])
    with closing(connector.receive(Reception())) as first:
        next(first), next(first), next(first)
        with closing(connector.receive(Reception(next(first).cursor))) as second, pytest.MonkeyPatch.context() as patch:
            patch.setattr(postgres_replication, "_FREED_WITHIN", 0.2)
            with pytest.raises(ReceiverError, match="another connection reads the slot"):
                [next(second) for _ in range(3)]


def test_a_receiver_tells_how_many_bytes_it_is_behind_and_lands_where_it_is_also_without_a_row(
    database: str, lake: Lake
) -> None:
    connector = changes_of(database)
    run(database, "insert into orders values (1)")
    with running(lake, received(connector, every="100 milliseconds")) as receiving:
        until(
            lambda: receiving.statuses and receiving.status.landed == 1 and receiving.status.behind is not None, "told"
        )
        before = confirmed(database, connector)
        run(database, "create table others as select generate_series(1, 1000) as n")
        until(lambda: confirmed(database, connector) > before + 10_000, "confirmed, as it is landed")
    assert not receiving.error
    assert " MB behind" in receiver_line(receiving.status)
    (row,) = map(json.loads, landed_rows(lake))
    assert row["after"]["id"] == 1


def test_names_and_passwords_that_cannot_be_are_refused() -> None:
    for wrong, text in (
        ({"slot": "My-Slot"}, "slot='My-Slot' of PostgresChanges cannot be the name of a slot"),
        ({"table": "a.b.c"}, "table='a.b.c' of PostgresChanges names no table"),
        ({"connection": "password=hunter2"}, "has a password"),
    ):
        with pytest.raises(DeclarationError, match=re.escape(text)):
            PostgresChanges(**{"table": "orders", "slot": "s", **wrong})


def test_a_change_made_while_the_slot_is_made_is_newer_than_the_row_that_was_there(database: str) -> None:
    run(database, "insert into orders values (1, 'DE')")
    landing, connector = Landing(), changes_of(database)
    receiving = connector.receive(Reception())

    def wait_for(other: int) -> None:
        query = f"select 1 from pg_locks where transactionid = {other}::text::xid and not granted"
        until(lambda: bool(rows(database, query)), "the slot is made once this transaction has ended")

    with (
        closing(receiving),
        ThreadPoolExecutor() as threads,
        psycopg.connect(database) as first,
        psycopg.connect(database) as second,
        psycopg.connect(database) as third,
    ):
        running = _transaction(first)
        made = threads.submit(next, receiving)
        wait_for(running)
        # The server knows of no transaction that begins from here on whether it is in the snapshot.
        following = _transaction(second)
        first.commit()
        wait_for(following)
        third.execute("update orders set country = 'FR' where id = 1")
        second.commit()
        landing.land(made.result(30))
        landing.land(next(receiving))
        consistent = landing.cursor["lsn"]
        third.commit()
        while len(landing.rows) < 2:
            landing.land(next(receiving))
    assert landing.told == [("r", 1), ("u", 1)] and landing.standing == there(database)
    assert landing.rows[0]["after"]["country"] == "DE"
    assert landing.rows[1]["source"]["lsn"] < consistent, "it was changed before the instant of the snapshot"


def _transaction(connection: psycopg.Connection[Any]) -> int:
    """Begin a transaction; its number."""
    (number,) = connection.execute("select pg_current_xact_id()::text").fetchone() or ("0",)
    return int(number)


SWITCHED = Server("s", timeline=3, flushed=900, switched={1: 300, 2: 500})
HISTORY = "1\t0/12C\tno recovery target specified\n\n2\t0/1F4\tbefore 2026-03-02\n"


@pytest.mark.parametrize(
    ("place", "goes_on_at"),
    [
        (Place(800, changed=700, system="s", timeline=3), 800),
        # The server was restored, or says less than it had written; what has changed the table is there, or is not.
        (Place(950, changed=900, system="s", timeline=3), 900),
        (Place(950, changed=901, system="s", timeline=3), None),
        # A standby has taken over, once or twice, and had all changes when it did, or not.
        (Place(520, changed=500, system="s", timeline=2), 500),
        (Place(520, changed=501, system="s", timeline=2), None),
        (Place(299, changed=200, system="s", timeline=1), 299),
        (Place(400, changed=301, system="s", timeline=1), None),
        # A transaction that has come in part, and whose end the server does not have.
        (Place(480, changed=400, commit=510, changes=2, system="s", timeline=2), None),
        (Place(480, changed=400, commit=490, changes=2, system="s", timeline=2), 480),
        # A timeline that the server does not come from, another server, and a place of an earlier release.
        (Place(100, changed=100, system="s", timeline=4), None),
        (Place(100, changed=100, system="other", timeline=3), None),
        (Place(900, changed=900), 900),
        (Place(901, changed=901), None),
    ],
)
def test_a_server_goes_on_only_where_it_has_all_changes_that_have_landed(place: Place, goes_on_at: int | None) -> None:
    assert switched_in(HISTORY) == SWITCHED.switched
    resumed = place.resumed(SWITCHED)
    assert (None if resumed is None else resumed.lsn) == goes_on_at
    assert resumed is None or (resumed.system, resumed.timeline) == ("s", 3)


def test_a_server_that_is_behind_what_has_landed_is_refused_and_not_passed_over(database: str) -> None:
    run(database, "insert into orders values (1, 'DE', 1, '')")
    landing, connector = Landing(), changes_of(database)
    landing.receive(connector)
    assert landing.told == [("r", 1)]
    # As a cursor of before, without what it says of the server; and one of a server that was further on.
    before = {name: value for name, value in landing.cursor.items() if name not in ("changed", "system", "timeline")}
    run(database, "insert into orders values (2, 'DE', 1, '')")
    for ahead in (before, landing.cursor):
        cursor = {**ahead, "lsn": ahead["lsn"] + 2**32}
        if "changed" in cursor:
            cursor["changed"] = cursor["lsn"]
        with pytest.raises(ReceiverError, match=r"which the server does not have: it was restored, or a standby"):
            next(connector.receive(Reception(cursor)))
    landing.cursor = before
    landing.receive(connector)
    assert landing.told == [("r", 1), ("c", 2)]
    assert landing.cursor["system"] and landing.cursor["timeline"] == 1
