"""The demands after stream, broker and database were killed or stalled at random, and what was measured of them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from benchmarks.demands import Demand
from benchmarks.pipelines import topic_meters
from benchmarks.readings import Readings
from streaming import Lake
from streaming.log.batches import read_batches
from tests.support import postgres
from tests.support.kafka import Broker
from tests.support.received import received

_WINDOW_SECONDS = 10


@dataclass(frozen=True)
class Blow:
    """A kill or a stall, and how many seconds later rows were delivered again; None where they were not."""

    victim: str
    seconds: float | None


@dataclass(frozen=True)
class Struck:
    """The state after the blows: the lake, and the readings that were generated.

    `runs` holds the exit codes of each command, `unsent` why the broker did not take a row.
    """

    lake: Lake
    readings: Readings
    blows: Sequence[Blow]
    runs: Mapping[str, Sequence[int]]
    unsent: Sequence[str]


def windows_in(broker: Broker) -> dict[tuple[str, int], int]:
    """The windows of a consumer that keeps each key's newest record: readings by meter and ten seconds of the epoch."""
    newest = {record.key: record.json for record in received(broker, topic_meters.WINDOWS)}
    return {
        (row["meter"], int(datetime.fromisoformat(row["window_start"]).timestamp()) // _WINDOW_SECONDS): row["readings"]
        for row in newest.values()
        if row is not None
    }


def demands_of(struck: Struck, broker: Broker, connection: str) -> list[Demand]:
    """Each demand, what was measured, and whether it holds."""
    seconds: dict[str, list[float | None]] = {}
    for blow in struck.blows:
        seconds.setdefault(blow.victim, []).append(blow.seconds)
    demands: list[Demand] = []
    for victim, of_victim in sorted(seconds.items()):
        recovered = [second for second in of_victim if second is not None]
        times = f"median {statistics.median(recovered or [0]):.1f} s, longest {max(recovered, default=0):.1f} s"
        demands.append(
            (f"delivers again after {victim}", f"{len(of_victim)} times, {times}", len(recovered) == len(of_victim))
        )
    generated, damaged = struck.readings.generated, struck.readings.damaged
    batches = read_batches(struck.lake, topic_meters.topic_meters)
    rows, rejected = sum(batch.summary.rows for batch in batches), sum(batch.rejected for batch in batches)
    query = "select count(*), count(distinct (meter, at, value)) from readings"
    held, different = postgres.rows(connection, query)[0]
    windows = {
        (meter, int(start.timestamp()) // _WINDOW_SECONDS): count
        for meter, start, count in postgres.rows(
            connection, "select meter, window_start, readings from per_ten_seconds"
        )
    }
    sent = windows_in(broker)
    failed = {name: codes for name, codes in struck.runs.items() if any(codes)}
    return [
        *demands,
        ("the broker has taken every row", f"{len(struck.unsent)} not", not struck.unsent),
        ("rows in the log = rows generated", f"{rows:,} = {generated:,}", rows == generated),
        ("rejected = damaged on purpose", f"{rejected:,} = {damaged:,}", rejected == damaged),
        (
            "each valid reading once in the database",
            f"{held:,} rows, {different:,} different, of {generated - damaged:,}",
            held == different == generated - damaged,
        ),
        (
            "windows in the database = an independent count",
            f"{len(windows):,} and {len(struck.readings.windows):,}",
            windows == dict(struck.readings.windows),
        ),
        (
            "windows in the topic, of committed rows = the same count",
            f"{len(sent):,} and {len(struck.readings.windows):,}",
            sent == dict(struck.readings.windows),
        ),
        (
            "no command failed, the audit included",
            ", ".join(f"{len(codes)} x {name}" for name, codes in struck.runs.items()),
            not failed,
        ),
    ]
