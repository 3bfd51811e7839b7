"""The flights from a topic, and what is known of their departures in a database, kept up to date by corrections.

Two parameters say where broker and database are.
"""

from dataclasses import replace

from platform_assets.demo.pipelines.flights import departures_by_origin, flights
from streaming import Delivery, Kafka, Pipeline, Postgres, parameter

TOPIC, TABLE = "flights", "departures_by_origin"

_servers, _connection = parameter("demo_kafka", "localhost:9092"), parameter("demo_postgres", "")

flights_topic = replace(flights, name="flights_topic", source=Kafka(_servers, topic=TOPIC, rows_per_batch=500))

departures = replace(departures_by_origin, name="departures_from_topic", of=flights_topic)

pipeline = Pipeline(
    flights_topic,
    (departures,),
    deliveries=(
        Delivery("flights_to_postgres", flights_topic, Postgres("flights", connection=_connection)),
        Delivery("departures_to_postgres", departures, Postgres(TABLE, connection=_connection), what="current"),
    ),
)
