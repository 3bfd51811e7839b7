"""The rows of topics that no batch has taken yet, told from the brokers and the query's checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from streaming.sources.backlog import SourceBacklog
from streaming.sources.kafka.memory import KafkaMemory
from streaming.sources.kafka.plan import planned_ends
from streaming.sources.kafka.ranges import words
from streaming.sources.kafka.start import Start, first_offsets
from streaming.sources.kafka.topics import Topic, name_of
from streaming.sources.source import Memory
from streaming.spark import has_begun, newest_planned

if TYPE_CHECKING:
    from streaming.sources.kafka.client import KafkaClient


class KafkaBacklog:
    """Counts offsets, which are rows but for markers of transactions and gaps."""

    def __init__(
        self, topics: Callable[[], dict[str, Topic]], client: KafkaClient, checkpoint: str, start: Start
    ) -> None:
        self._topics = topics
        self._client = client
        self._checkpoint = checkpoint
        self._start = start

    def count(self, memory: Memory) -> SourceBacklog:
        """The rows that wait now, by partition.

        Raises:
            SourceError: the brokers do not answer.
        """
        topics, remembered = self._topics(), KafkaMemory.from_json(memory)
        places = [(topic.name, number) for topic in topics.values() for number in topic.partitions]
        ends, earliest = self._client.ends(places), self._client.earliest(places)
        batch = newest_planned(self._checkpoint)
        if batch is not None:
            taken = planned_ends(self._checkpoint, batch)
        else:
            taken = first_offsets(self._client, topics, self._start, remembered)
        # Rows that were removed meanwhile do not wait any more.
        waiting = {
            name_of(place): ends[place] - max(taken.get(place, 0), earliest[place])
            for place in places
            if ends[place] > max(taken.get(place, 0), earliest[place])
        }
        warning = " ".join(self._warnings(remembered))
        return SourceBacklog(sum(waiting.values()), "rows", warning=warning, partitions=waiting)

    def _warnings(self, memory: KafkaMemory) -> list[str]:
        warnings = []
        if memory.gaps:
            counted = ", ".join(f"{number:,} of {name}" for name, number in sorted(memory.gaps.items()))
            warnings.append(
                f"Offsets that brought no row and end no transaction: {counted}. Compaction leaves such gaps, and so "
                "does whoever deletes rows."
            )
        if memory.lost:
            skipped = ", ".join(f"{name} offsets {words(ranges)}" for name, ranges in sorted(memory.lost.items()))
            warnings.append(f"Removed before they were read, and left out as declared by when_lost: {skipped}.")
        if memory.start is not None and memory.start != str(self._start) and has_begun(self._checkpoint):
            warnings.append(
                f"start={self._start!r} is declared, and the stream goes on where it is: it began at {memory.start}, "
                f"and a start position is for the first start. To begin there anew, stop the stream and move the "
                f"checkpoint {self._checkpoint!r} away; what the log holds is not read twice."
            )
        return warnings
