"""Where a query begins to read: as declared at the first start; later before whatever the log does not hold yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from streaming.base import DeclarationError, FrozenMapping, SourceError
from streaming.sources.kafka.memory import KafkaMemory
from streaming.sources.kafka.ranges import beyond
from streaming.sources.kafka.topics import Partition, Topic, name_of

if TYPE_CHECKING:
    from streaming.sources.kafka.client import KafkaClient


@dataclass(frozen=True)
class CommittedOffsets:
    """Begin where the consumer group `group` has got to; `otherwise` where it has committed nothing.

    For a stream that takes over from a consumer. The group itself stays as it is.
    """

    group: str
    otherwise: Literal["earliest", "latest"] = "latest"

    def __post_init__(self) -> None:
        if self.otherwise not in ("earliest", "latest"):
            raise DeclarationError(f"otherwise={self.otherwise!r} is no position; write 'earliest' or 'latest'.")


Start = Literal["earliest", "latest"] | datetime | Mapping[int | str, int] | CommittedOffsets


def checked_start(start: object, topics: tuple[str, ...]) -> Start:
    """A start position as a declaration holds it: partitions by their names.

    Raises:
        DeclarationError: it is none.
    """
    match start:
        case "earliest" | "latest" | CommittedOffsets():
            return start
        case datetime():
            if start.tzinfo is None:
                raise DeclarationError(
                    f"start={start!r} has no time zone; write which instant is meant, such as "
                    "datetime(2026, 1, 1, tzinfo=UTC)."
                )
            return start
        case Mapping():
            return FrozenMapping(dict(_offsets(start, topics)))
    raise DeclarationError(
        f"start={start!r} is no start position; write 'earliest', 'latest', an instant such as datetime(2026, 1, 1, "
        "tzinfo=UTC), offsets such as {0: 17, 1: 4}, or CommittedOffsets('group')."
    )


def _offsets(start: Mapping[object, object], topics: tuple[str, ...]) -> Iterable[tuple[str, int]]:
    for partition, offset in start.items():
        if isinstance(partition, int) and len(topics) == 1:
            name = name_of((topics[0], partition))
        elif isinstance(partition, str) and partition.rpartition("-")[2].isdigit():
            name = partition
        else:
            raise DeclarationError(
                f"start={dict(start)!r} names the partition {partition!r}; write its number where there is one topic, "
                "and topic and number such as 'orders-0' where there are several."
            )
        if not isinstance(offset, int) or offset < 0:
            raise DeclarationError(f"start={dict(start)!r} has the offset {offset!r}; write 0 or more.")
        yield name, offset


def first_offsets(
    client: KafkaClient, topics: Mapping[str, Topic], start: Start, memory: KafkaMemory
) -> dict[Partition, int]:
    """From where a query without a checkpoint reads each partition that is there.

    Of a log that has nothing yet, from where the declaration says. Otherwise from there too, but at the latest from
    where the log ends, and without what it holds: so nothing is left out, and nothing is read twice. What a log with
    rows has never seen of, a new partition or topic, is read from its first row.

    Raises:
        SourceError: the brokers do not answer, or a declared offset is not there.
    """
    partitions = [(topic.name, number) for topic in topics.values() for number in topic.partitions]
    declared = _declared(client, partitions, start)
    if not memory.ranges:
        return declared
    earliest = client.earliest(partitions)
    offsets = {}
    for partition in partitions:
        held = memory.of(topics[partition[0]].id, partition[1])
        if held is None:
            offsets[partition] = earliest[partition]
        else:
            offsets[partition] = beyond(min(declared[partition], held[-1][1]), held)
    return offsets


def _declared(client: KafkaClient, partitions: list[Partition], start: Start) -> dict[Partition, int]:
    offsets: Mapping[Partition, int | None]
    match start:
        case "earliest":
            return client.earliest(partitions)
        case "latest":
            return client.ends(partitions)
        case datetime():
            offsets, otherwise = client.from_instant(partitions, start), "latest"
        case CommittedOffsets():
            offsets, otherwise = client.committed(start.group, partitions), start.otherwise
        case _:
            offsets, otherwise = _given(client, partitions, start), "earliest"
    missing = [partition for partition in partitions if offsets.get(partition) is None]
    others = client.ends(missing) if otherwise == "latest" else client.earliest(missing)
    return {**{partition: offset for partition, offset in offsets.items() if offset is not None}, **others}


def _given(client: KafkaClient, partitions: list[Partition], start: Mapping[int | str, int]) -> dict[Partition, int]:
    """The declared offsets, each of which must be one that the partition has or comes to next."""
    by_name = {name_of(partition): partition for partition in partitions}
    unknown = sorted(str(name) for name in start if name not in by_name)
    if unknown:
        raise SourceError(
            f"start={dict(start)!r} names {', '.join(unknown)}, and the partitions are {', '.join(sorted(by_name))}; "
            "correct the declaration. Nothing was read."
        )
    given = {by_name[str(name)]: offset for name, offset in start.items()}
    earliest, ends = client.earliest(given), client.ends(given)
    for partition, offset in given.items():
        if not earliest[partition] <= offset <= ends[partition]:
            raise SourceError(
                f"start={dict(start)!r} begins {name_of(partition)} at {offset}, and it holds the offsets from "
                f"{earliest[partition]} to before {ends[partition]}; correct the declaration. Nothing was read."
            )
    return given
