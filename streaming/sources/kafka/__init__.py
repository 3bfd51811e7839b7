"""Topics of Kafka as a source."""

from typing import TYPE_CHECKING

from streaming.base.fronts import make_front

if TYPE_CHECKING:
    from streaming.sources.kafka.source import CommittedOffsets, Kafka

make_front(__name__)
