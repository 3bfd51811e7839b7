"""What readers and writers of Kafka share: names, and the options of its clients."""

from streaming.kafka.names import can_name_a_topic, check_servers
from streaming.kafka.options import (
    READER,
    WRITER,
    ClientOptions,
    client_options,
    for_librdkafka,
    for_producer,
    for_spark,
    reads_committed,
)

__all__ = [
    "READER",
    "WRITER",
    "ClientOptions",
    "can_name_a_topic",
    "check_servers",
    "client_options",
    "for_librdkafka",
    "for_producer",
    "for_spark",
    "reads_committed",
]
