"""Topics of Kafka as a source."""

from streaming.sources.kafka.source import Kafka
from streaming.sources.kafka.start import CommittedOffsets
