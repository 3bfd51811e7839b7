"""The meters once more, from a topic into a database and a topic: the pipeline of the kills from end to end.

The environment says where broker and database are.
"""

import os
from dataclasses import replace

from benchmarks.pipelines.meters import meters
from benchmarks.pipelines.meters import pipeline as from_files
from streaming import Delivery, Kafka, KafkaTopic, Pipeline, Postgres, Tumbling, Windowed, agg

SERVERS, CONNECTION = "METERS_KAFKA", "METERS_POSTGRES"
TOPIC, WINDOWS = "meters", "windows"

_servers, _connection = os.environ.get(SERVERS, "localhost:9092"), os.environ.get(CONNECTION, "")

topic_meters = replace(meters, name="topic_meters", source=Kafka(_servers, topic=TOPIC))

topic_per_ten_seconds = Windowed(
    "topic_per_ten_seconds", topic_meters, Tumbling("10 seconds"), {"readings": agg.count()}, by=("meter",)
)

pipeline = Pipeline(
    topic_meters,
    (topic_per_ten_seconds,),
    deliveries=(
        Delivery("readings_to_table", topic_meters, Postgres("readings", connection=_connection)),
        Delivery(
            "windows_to_table",
            topic_per_ten_seconds,
            Postgres("per_ten_seconds", connection=_connection),
            what="current",
        ),
        Delivery("windows_to_topic", topic_per_ten_seconds, KafkaTopic(_servers, WINDOWS), what="current"),
    ),
    restart=from_files.restart,
    stop_within=from_files.stop_within,
)
