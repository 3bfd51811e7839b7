"""Topics of Kafka as a source."""

from streaming.sources.kafka.source import CommittedOffsets, Kafka
