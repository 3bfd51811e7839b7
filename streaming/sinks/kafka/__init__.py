"""Topics of Kafka as a target."""

from streaming.sinks.kafka.topic import KafkaTopic
