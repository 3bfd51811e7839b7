"""Lookups in a real Postgres that ends their connections while nobody asks."""

from __future__ import annotations

import asyncio

from streaming import BlockingPostgresLookup, LookupRequest, PostgresLookup
from streaming.base import row_class
from tests.support import postgres as postgres_server

QUERY = "select %(n)s::bigint * 2 as doubled"
END_ALL = """
    select pg_terminate_backend(pid) from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid()
"""
ROW = row_class(("n",))(3)


def test_a_blocking_lookup_connects_anew_where_the_server_has_ended_its_connection(postgres: str) -> None:
    lookup = BlockingPostgresLookup(postgres, QUERY)
    with lookup.opens() as opened:
        request = LookupRequest("key", 1, opened)
        assert lookup(ROW, request) == {"doubled": 6}
        postgres_server.run(postgres, END_ALL)
        assert lookup(ROW, request) == {"doubled": 6}


def test_so_does_one_of_coroutines(postgres: str) -> None:
    lookup = PostgresLookup(postgres, QUERY)

    async def asked_twice() -> list[object]:
        async with lookup.opens() as opened:
            request = LookupRequest("key", 1, opened)
            first = await lookup(ROW, request)
            postgres_server.run(postgres, END_ALL)
            return [first, await lookup(ROW, request)]

    assert asyncio.run(asked_twice()) == [{"doubled": 6}, {"doubled": 6}]
