"""Offsets that were planned and brought no row: markers of transactions, rows that were aborted, or a gap."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streaming.sources.kafka.ranges import Ranges, size
from streaming.sources.kafka.topics import Partition, name_of

if TYPE_CHECKING:
    from streaming.sources.kafka.client import KafkaClient

_LOOKED_AT = 100


def count_gaps(
    written: DataFrame, expected: Mapping[Partition, Ranges], counts: Mapping[str, int], client: KafkaClient
) -> dict[Partition, int]:
    """Offsets of each partition that should have brought a row and did not, in a batch that is `written`.

    A single offset is taken for the marker that ends a transaction, which nothing tells from it. A longer run is no gap
    where a row of a transaction that was aborted is found in it. Compaction leaves gaps, and so does whoever deletes
    rows. Looks at rows only where there are fewer of them than offsets.
    """
    fewer = {
        partition: ranges for partition, ranges in expected.items() if counts.get(name_of(partition), 0) < size(ranges)
    }
    offsets = _offsets(written, list(fewer))
    gaps = {}
    for partition, ranges in fewer.items():
        runs = [run for run in missing_runs(offsets[partition], ranges) if run[1] - run[0] > 1]
        hidden = [run for run in runs[:_LOOKED_AT] if _holds_a_row(client, partition, run)]
        gaps[partition] = size(tuple(runs)) - size(tuple(hidden))
    return {partition: number for partition, number in gaps.items() if number}


def missing_runs(offsets: NDArray[np.int64], expected: Ranges) -> list[tuple[int, int]]:
    """The runs of expected offsets that are not there, each as its first and the one behind its last."""
    runs = []
    for first, end in expected:
        inside = np.sort(offsets[(offsets >= first) & (offsets < end)])
        edges = np.concatenate([[first - 1], inside, [end]])
        places = np.flatnonzero(np.diff(edges) > 1)
        runs += [(int(edges[place]) + 1, int(edges[place + 1])) for place in places]
    return runs


def _offsets(written: DataFrame, partitions: list[Partition]) -> dict[Partition, NDArray[np.int64]]:
    if not partitions:
        return {}
    names = [name_of(partition) for partition in partitions]
    origin = F.col("_origin")
    name = F.concat_ws("-", origin["topic"], origin["partition"]).alias("name")
    table = written.select(name, origin["offset"].alias("offset")).where(F.col("name").isin(names)).toArrow()
    row_names, offsets = table["name"].to_numpy(), table["offset"].to_numpy()
    return {partition: offsets[row_names == name_of(partition)] for partition in partitions}


def _holds_a_row(client: KafkaClient, partition: Partition, run: tuple[int, int]) -> bool:
    offset = client.first_offset_from(partition, run[0])
    return offset is not None and offset < run[1]
