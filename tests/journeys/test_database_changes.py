"""A table of a real Postgres, followed by its log: what stands is the table, and revenue is a query on it."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from docs.examples.database_orders import database_orders, revenue_by_hour, revenue_to_the_shop
from streaming import BoundedOutOfOrderness, Debezium, Files, Lake, Pipeline, Postgres, PostgresChanges, Receiver
from streaming.audit.laws import audit
from streaming.base import StreamingError
from streaming.log import head
from streaming.revisions import standing_rows
from streaming.sources.receivers import landing, postgres_replication
from tests.support import postgres as server
from tests.support.instants import NOW, T0
from tests.support.killed import Killed, killed_at
from tests.support.logical_decoding import Slot
from tests.support.receiving import running
from tests.support.runs import run
from tests.support.seeds import draws
from tests.support.waiting import until
from tidemark.testing import correct, land

orders = replace(
    database_orders,
    source=Files("landing/orders"),
    clock=BoundedOutOfOrderness("10 minutes", max_ahead="30 days"),
)
revenue = replace(revenue_by_hour, of=orders)
COLUMNS = "id, country, status, amount, notes, placed_at"


def shop(connection: psycopg.Connection[Any], chance: random.Random, until: datetime) -> None:
    """A while in a shop: orders are placed, paid, sent, cancelled, corrected and deleted, some in one transaction."""
    for _ in range(12):
        with connection.transaction():
            for _ in range(chance.choice((1, 1, 3))):
                known = [row[0] for row in connection.execute("select id from orders order by id").fetchall()]
                act = chance.random()
                if act < 0.45 or not known:
                    placed = until - timedelta(minutes=chance.choice((0, 5, 30, 150)))
                    # Too large for its row, so an update that leaves it as it is does not tell it.
                    notes = "".join(chance.choices("abcdefgh ", k=6_000)) if chance.random() < 0.5 else None
                    connection.execute(
                        "insert into orders (country, status, amount, notes, placed_at) "
                        "values (%s, 'placed', %s, %s, %s)",
                        [chance.choice(("DE", "FR")), chance.randint(1, 9_999) / 100, notes, placed],
                    )
                    continue
                chosen = chance.choice(known)
                change = chance.choice(
                    (
                        "update orders set status = 'cancelled' where id = %s",
                        "update orders set status = 'sent' where id = %s",
                        "update orders set country = case country when 'DE' then 'FR' else 'DE' end where id = %s",
                        "update orders set amount = amount + 0.01 where id = %s",
                        "update orders set notes = null where id = %s",
                        "update orders set placed_at = placed_at - interval '1 hour' where id = %s",
                        "delete from orders where id = %s",
                    )
                )
                connection.execute(change, [chosen])


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long), pytest.param(2, marks=pytest.mark.long)])
def test_revenue_follows_updates_and_deletes_of_a_postgres_table_whatever_is_killed(
    spark: SparkSession, lake: Lake, postgres: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = draws(f"database changes {seed}")
    server.run(
        postgres,
        "create table orders (id bigserial primary key, country text not null, status text not null, "
        "amount numeric(10, 2) not null, notes text, placed_at timestamptz not null)",
        "alter table orders alter column notes set storage external",
    )
    paid = Postgres(connection=postgres, table="paid", key=("country", "window_start"))
    delivery = replace(revenue_to_the_shop, of=revenue, to=paid)
    pipeline = Pipeline(orders, (revenue,), deliveries=(delivery,))
    slot = Slot(postgres, "orders")
    try:
        unavailable = 0
        with psycopg.connect(postgres, autocommit=True) as connection:
            for hour in range(4):
                shop(connection, chance, T0 + timedelta(hours=1 + hour))
                envelopes = slot.changes()
                unavailable += sum("__debezium_unavailable_value" in str(each["after"]) for each in envelopes)
                if hour:
                    # The connector has died, and sends some of it once more.
                    envelopes += envelopes[-5:]
                land(lake.path("landing/orders"), envelopes)
                with monkeypatch.context() as patched, suppress(Killed, StreamingError):
                    if chance.random() < 0.7:
                        killed_at(chance.randint(1, 6), patched)
                    run(spark, lake, pipeline)
        run(spark, lake, pipeline)
        correct(spark, lake, revenue, lambda: NOW)
        run(spark, lake, pipeline)
    finally:
        slot.drop()
    assert unavailable
    there = server.rows(postgres, f"select {COLUMNS} from orders order by id")
    found = standing_rows(spark, lake, orders).selectExpr(*COLUMNS.split(", ")).orderBy("id").toArrow().to_pylist()
    assert [tuple(row.values()) for row in found] == there
    newest = head(lake, orders)
    assert newest is not None and newest.after.watermark is not None
    query = (
        "select country, start, count(*), sum(amount) from "
        "(select *, date_trunc('hour', placed_at, 'UTC') as start from orders where status <> 'cancelled') as counted "
        f"where start + interval '1 hour' <= '{newest.after.watermark.isoformat()}' group by country, start"
    )
    delivered = "select country, window_start, orders, revenue from paid"
    assert sorted(server.rows(postgres, delivered)) == sorted(server.rows(postgres, query))
    assert [finding for finding in audit(spark, lake, pipeline) if not finding.holds] == []


def reached(postgres: str, slot: str) -> bool:
    """True once all that the server has written is landed and confirmed."""
    query = (
        f"select confirmed_flush_lsn >= pg_current_wal_flush_lsn() from pg_replication_slots where slot_name = '{slot}'"
    )
    return server.rows(postgres, query) == [(True,)]


@pytest.mark.long
def test_what_stands_is_the_table_that_a_receiver_follows_by_its_slot_whatever_is_killed(
    spark: SparkSession, lake: Lake, postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = draws("database changes by a slot")
    server.run(
        postgres,
        "create table orders (id bigserial primary key, country text not null, status text not null, "
        "amount numeric(10, 2) not null, notes text, placed_at timestamptz not null)",
        "alter table orders alter column notes set storage external",
    )
    monkeypatch.setattr(postgres_replication, "_TELLS_EVERY", 0.2)
    ((slot,),) = server.rows(postgres, "select current_database()")
    assert isinstance(orders.format, Debezium)
    followed = replace(
        orders, source=Files("landing/orders", files_per_batch=50), format=replace(orders.format, decimals="number")
    )
    receiver = Receiver("orders_in", PostgresChanges("orders", slot, postgres), into=followed, every="200 milliseconds")
    counted = replace(revenue, of=followed)
    pipeline = Pipeline(followed, (counted,), receivers=(receiver,))
    try:
        with psycopg.connect(postgres, autocommit=True) as connection:
            shop(connection, chance, T0 + timedelta(hours=1))
            for hour in range(1, 4):
                with monkeypatch.context() as patched:
                    if hour == 2:
                        # The receiver dies once, after what it has landed is durable.
                        patched.setattr(landing, "make_durable", died_once(landing.make_durable))
                    with running(lake, pipeline):
                        shop(connection, chance, T0 + timedelta(hours=1 + hour))
                        until(lambda: reached(postgres, slot), "landed", within=60)
                with monkeypatch.context() as patched, suppress(Killed, StreamingError):
                    if hour < 3:
                        killed_at(chance.randint(1, 4), patched)
                    run(spark, lake, pipeline)
        run(spark, lake, pipeline)
    finally:
        with psycopg.connect(postgres, autocommit=True) as connection:
            connection.execute("select pg_drop_replication_slot(%s)", [slot])
    there = server.rows(postgres, f"select {COLUMNS} from orders order by id")
    found = standing_rows(spark, lake, followed).selectExpr(*COLUMNS.split(", ")).orderBy("id").toArrow().to_pylist()
    assert [tuple(row.values()) for row in found] == there
    assert [finding for finding in audit(spark, lake, pipeline) if not finding.holds] == []


def died_once(make_durable: Callable[[Path], None]) -> Callable[[Path], None]:
    """The function, which fails at its third call, as a disk does that is full; then all goes on."""
    calls = 0

    def fails(path: Path) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise RuntimeError("the receiver dies")
        make_durable(path)

    return fails
