"""Parts that readers and writers of Kafka share: names, the options of its clients, and what those hear."""

from streaming.kafka.last_error import LastError
from streaming.kafka.names import can_name_a_topic, check_servers
from streaming.kafka.options import (
    READER,
    WRITER,
    ClientOptions,
    client_options,
    for_librdkafka,
    for_producer,
    for_spark,
    for_tasks,
    reads_committed,
)
