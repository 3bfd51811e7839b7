"""Golden tests of receivers, against servers that really push and a database that really is there."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest
from pyspark.sql import SparkSession

from docs.examples.city_temperatures import events, mean_by_city, temperatures, temperatures_in
from docs.examples.city_temperatures import pipeline as cities
from docs.examples.table_rows import TableRows
from platform_assets.cli.tables import readable
from streaming import Json, Lake, Pipeline, Websocket, log, maintain
from streaming.operations import undeclared_tables
from tests.support.instants import T0
from tests.support.receiving import received, running
from tests.support.runs import run, tuples
from tests.support.servers import city_server
from tests.support.waiting import until
from tidemark.testing import read


def event(city: str | None, minute: int) -> dict[str, str | None]:
    return {"city_code": city, "at": (T0 + timedelta(minutes=minute)).isoformat()}


def reading(city: str, minute: int, temperature: float) -> str:
    at = (T0 + timedelta(minutes=minute)).isoformat()
    return json.dumps({"city_code": city, "ts": at, "temperature": temperature})


@pytest.mark.long
def test_s15_the_cities_of_a_first_stream_are_asked_for_once_on_each_connection(
    spark: SparkSession, lake: Lake
) -> None:
    pushed = {
        "BER": [reading("BER", 1, 10), reading("BER", 2, 20)],
        "PAR": [reading("PAR", 1, 5)],
        "ROM": [reading("ROM", 1, 25)],
    }
    run(spark, lake, cities, [event("BER", 1), event("PAR", 2), event("BER", 3), event(None, 4)])
    with city_server(pushed) as server:
        receiver = replace(temperatures_in, connector=Websocket(server.url), every="50 milliseconds")
        pipeline = Pipeline(name=cities.name, streams=cities.streams, operators=cities.operators, receivers=(receiver,))
        with running(lake, pipeline) as receiving:
            until(lambda: receiving.rows == 3, "pushed")
            assert server.requests == [["BER", "PAR"]]
            server.drop()
            until(lambda: server.requests[1:] == [["BER", "PAR"]], "asked for anew")
            until(lambda: receiving.rows == 6, "pushed anew")
            # While the connection stands, a city that is new is asked for, and only it.
            run(spark, lake, pipeline, [event("ROM", 5), event("BER", 6)])
            until(lambda: server.requests[1:] == [["BER", "PAR", "ROM"]], "asked for a new city")
        with running(lake, pipeline) as receiving:
            until(lambda: server.requests[2:] == [["BER", "PAR", "ROM"]], "asked for after a restart")
            until(lambda: receiving.rows == 4, "pushed after a restart")

    subscriptions = readable(lake, pipeline, mean_by_city)["temperatures_in_subscriptions"](spark)
    assert subscriptions.columns == ["city_code", "first_seen"]
    assert tuples(subscriptions, "city_code") == [("BER",), ("PAR",), ("ROM",)]
    maintain(lake, pipeline)
    assert list(undeclared_tables(lake, pipeline)) == []
    run(spark, lake, pipeline, end_of_input=True)
    assert log.valid(log.read_log(spark, lake, temperatures)).count() == 11
    assert log.rejected(log.read_log(spark, lake, events)).count() == 1
    averages = read(spark, lake, mean_by_city, "current", "city_code", "temperature")
    assert averages == [("BER", 15.0), ("PAR", 5.0), ("ROM", 25.0)]


def test_more_cities_than_a_portion_are_all_asked_for(spark: SparkSession, lake: Lake) -> None:
    codes = [f"C{number:03}" for number in range(250)]
    run(spark, lake, cities, [event(code, 1) for code in codes])
    with city_server({}) as server:
        receiver = replace(temperatures_in, connector=Websocket(server.url))
        pipeline = Pipeline(name=cities.name, streams=cities.streams, operators=cities.operators, receivers=(receiver,))
        with running(lake, pipeline):
            until(lambda: server.requests and len(server.requests[0]) == 250, "asked for")
    assert server.requests == [codes]


@pytest.mark.long
def test_s17_a_connector_of_ones_own_takes_the_rows_of_a_table_once(
    spark: SparkSession, lake: Lake, postgres: str
) -> None:
    shop = TableRows("orders", postgres)
    pipeline = received(shop, Json("id bigint not null, at timestamp not null"), every="1 hour")

    def order(*ids: int) -> None:
        with psycopg.connect(postgres) as connection:
            for number in ids:
                connection.execute("insert into orders values (%s, %s)", (number, T0 + timedelta(seconds=number)))

    with psycopg.connect(postgres) as connection:
        connection.execute("create table orders (id bigint primary key, at timestamptz not null)")
    order(1, 2)
    with running(lake, pipeline) as receiving:
        until(lambda: receiving.rows == 2, "received")
        order(3)
        until(lambda: receiving.rows == 3, "received while it runs")
    order(4, 5)
    with running(lake, pipeline) as receiving:
        until(lambda: receiving.rows == 2, "received after a restart")
        order(6)
    order(7)
    with running(lake, pipeline) as receiving:
        until(lambda: receiving.statuses and receiving.rows > 0, "received what came meanwhile")
    run(spark, lake, pipeline)
    ids = [number for (number,) in tuples(log.valid(log.read_log(spark, lake, pipeline.stream)), "id")]
    assert ids == [1, 2, 3, 4, 5, 6, 7]
