"""The record of a soak: what happened, what was demanded, and a picture of it."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from benchmarks.demands import Demand
from benchmarks.processes import ORPHANS_GONE_WITHIN
from streaming import Lake, Pipeline
from streaming.log.batches import read_batches
from streaming.service.progress_table import read_progress
from streaming.service.query_errors import ingest_query

_RECOVERS_WITHIN = 30.0


@dataclass
class Kill:
    """One kill: what was hit, how long until the next commit, and who was still alive after fifteen seconds."""

    at: float
    victim: str
    recovered_after: float | None = None
    orphans: list[str] = field(default_factory=list)


@dataclass
class Record:
    """The record of a soak, in seconds since the start."""

    minutes: float
    generated: int = 0
    damaged: int = 0
    kills: list[Kill] = field(default_factory=list)
    memory: list[tuple[float, int]] = field(default_factory=list)
    runs: dict[str, list[int]] = field(default_factory=dict)


def quarters(values: list[tuple[float, float]], length: float) -> list[float]:
    """The median of each quarter of the time; 0 where it has no value."""
    medians = []
    for quarter in range(4):
        inside = [value for at, value in values if quarter * length / 4 <= at < (quarter + 1) * length / 4]
        medians.append(statistics.median(inside) if inside else 0.0)
    return medians


def demands_of(
    lake: Lake, pipeline: Pipeline, record: Record, audited: int, started: datetime
) -> tuple[list[Demand], list[tuple[float, float]]]:
    """Every demand, with what was measured and whether it holds; and the times of the first log's batches."""
    length, stream = record.minutes * 60, pipeline.streams[0]
    query = ingest_query(pipeline, stream)
    measures = [entry for entry in read_progress(lake, pipeline, started) if entry.query == query and entry.rows]
    times = [((entry.started - started).total_seconds(), entry.seconds) for entry in measures]
    memory = quarters([(at, float(size)) for at, size in record.memory], length)
    batch_times = quarters(times, length)
    described = read_batches(lake, stream)
    logged = sum(batch.summary.rows for batch in described)
    rejected = sum(batch.rejected for batch in described)
    recovered = [kill.recovered_after for kill in record.kills]
    seconds_lost = [seconds for seconds in recovered if seconds is not None]
    orphans = [orphan for kill in record.kills for orphan in kill.orphans]
    failed = {name: codes for name, codes in record.runs.items() if any(codes)}
    recovery = f"median {statistics.median(seconds_lost or [0]):.1f} s, longest {max(seconds_lost, default=0):.1f} s"
    return [
        ("tidemark audit", f"exit code {audited}", audited == 0),
        ("rows in the log = rows generated", f"{logged:,} = {record.generated:,}", logged == record.generated),
        ("rejected = damaged on purpose", f"{rejected:,} = {record.damaged:,}", rejected == record.damaged),
        (
            f"committing again within {_RECOVERS_WITHIN:.0f} s of a kill",
            f"{len(recovered)} kills, {recovery}",
            len(seconds_lost) == len(recovered) and max(seconds_lost, default=0) <= _RECOVERS_WITHIN,
        ),
        (f"no orphan {ORPHANS_GONE_WITHIN:.0f} s after a kill", f"{len(orphans)} orphans", not orphans),
        (
            "memory: last quarter at most 1.1 x the second",
            " ".join(f"{size / 2**20:,.0f}" for size in memory) + " MB",
            memory[3] <= 1.1 * memory[1],
        ),
        (
            "batch time: last quarter at most 1.3 x the second",
            " ".join(f"{seconds:.2f}" for seconds in batch_times) + " s",
            0 < batch_times[3] <= 1.3 * batch_times[1],
        ),
        (
            "no run of corrections or maintenance failed",
            ", ".join(f"{len(codes)} x {name}" for name, codes in record.runs.items()),
            not failed,
        ),
    ], times


def draw(path: Path, record: Record, times: list[tuple[float, float]]) -> None:
    """Memory, batch times and kills over the minutes."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (upper, lower) = plt.subplots(2, 1, sharex=True, figsize=(10, 5.5), layout="constrained")
    upper.plot([at / 60 for at, _ in record.memory], [size / 2**20 for _, size in record.memory], ".", markersize=3)
    upper.set_ylabel("memory of all processes, MB")
    upper.set_ylim(bottom=0)
    lower.plot([at / 60 for at, _ in times], [seconds for _, seconds in times], ".", markersize=2)
    lower.set_ylabel("batch time, s")
    lower.set_yscale("log")
    lower.set_xlabel("minutes; grey: kills")
    for kill in record.kills:
        for axes in (upper, lower):
            axes.axvline(kill.at / 60, color="lightgrey", zorder=0)
    figure.savefig(path, dpi=110)
