"""Topics of Kafka as a target."""

from typing import TYPE_CHECKING

from streaming.base.fronts import make_front

if TYPE_CHECKING:
    from streaming.sinks.kafka.topic import KafkaTopic

make_front(__name__)
