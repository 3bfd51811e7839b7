"""Parts that readers and writers of Kafka share: names, the options of its clients, and what those hear."""

from typing import TYPE_CHECKING

from streaming.base.fronts import make_front

if TYPE_CHECKING:
    from streaming.kafka.options import (
        WRITER,
        ClientOptions,
        LastError,
        can_name_a_topic,
        check_servers,
        client_options,
        for_librdkafka,
        for_producer,
        for_spark,
        for_tasks,
        left_to_java,
        reads_committed,
    )

make_front(__name__)
