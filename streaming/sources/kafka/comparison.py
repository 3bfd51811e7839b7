"""What topics say against the log: created again, rows not ingested yet, and rows that are in the log twice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streaming.sources.kafka.topics import Topic, name_of
from streaming.sources.source import SourceChange, SourceComparison

if TYPE_CHECKING:
    from streaming.sources.kafka.client import KafkaClient


def compare_topics(topics: Mapping[str, Topic], client: KafkaClient, origins: DataFrame) -> SourceComparison:
    """How topics differ from what `origins` (column `_origin`) say of them, ordered by partition.

    A row that its retention has removed since is no change, and neither is a topic that is gone.
    """
    origin = F.col("_origin")
    # Rows that repair one have its place.
    own = origins.where(origin.isNotNull() & _is_no_repair(origins))
    partitions = (
        own.groupBy(*(origin[name].alias(name) for name in ("topic", "topic_id", "partition")))
        .agg(
            F.max(origin["offset"]).alias("last"),
            (F.count(F.lit(1)) - F.count_distinct(origin["offset"])).alias("repeated"),
        )
        .collect()
    )
    changes = [
        SourceChange(
            "changed",
            name_of((row["topic"], row["partition"])),
            f"{name_of((row['topic'], row['partition']))} has {row['repeated']:,} rows more in the log than offsets; "
            "each offset should be there once.",
        )
        for row in partitions
        if row["repeated"]
    ]
    ids: dict[str, set[str]] = {}
    read: dict[tuple[str, int], int] = {}
    for row in partitions:
        ids.setdefault(row["topic"], set()).add(row["topic_id"])
        if row["topic"] in topics and topics[row["topic"]].id == row["topic_id"]:
            read[(row["topic"], row["partition"])] = row["last"] + 1
    changes += [
        SourceChange(
            "changed",
            name,
            f"{name} was deleted and created again since: the log has rows of {', '.join(sorted(there))}, and the "
            f"topic is {topics[name].id} now. Run the pipeline, which says what to do.",
        )
        for name, there in sorted(ids.items())
        if name in topics and topics[name].id not in there
    ]
    places = [(topic.name, number) for topic in topics.values() for number in topic.partitions]
    earliest, ends = client.earliest(places), client.ends(places)
    for place in places:
        waiting = ends[place] - max(read.get(place, 0), earliest[place])
        if waiting > 0:
            text = f"{name_of(place)} has {waiting:,} offsets that are not in the log; run the pipeline."
            changes.append(SourceChange("waiting", name_of(place), text))
    return SourceComparison(len(partitions), "partitions", tuple(changes))


def _is_no_repair(origins: DataFrame) -> Column:
    origin = origins.schema["_origin"].dataType
    return F.col("_origin.repairs").isNull() if "repairs" in origin.names else F.lit(True)  # type: ignore[attr-defined]
