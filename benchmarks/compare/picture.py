"""The cost of every contender, as a table and as bars."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.compare.arena import medians
from benchmarks.compare.measure import Measured

_SHOWN = ("duckdb", "plain", "log", "tidemark", "flink", "usual")
_WHAT = {
    "duckdb": "DuckDB + delta-rs, one batch",
    "plain": "Spark, JSON to Parquet",
    "log": "Tidemark, event log",
    "tidemark": "Tidemark, log + first results",
    "flink": "Flink, valid rows + windows",
    "usual": "Spark, three queries by hand",
}

Runs = dict[tuple[str, str], list[Measured]]


def contenders_table(runs: Runs, shape: str, rows: int) -> str:
    """One Markdown row per contender, of the run with the median wall time."""
    lines = [
        "| contender | runs | wall s | CPU s | peak MB | rows a batch | s a batch |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, run in _of(runs, shape):
        batches = run.result.get("batches")
        cadence = f"{rows / batches:,.0f} | {run.result['seconds'] / batches:.1f}" if batches else "|"
        lines.append(
            f"| {_WHAT[name]} | {len(runs[name, shape])} | {run.wall:.1f} | {run.cpu:.1f} | {run.peak / 2**20:,.0f} | "
            f"{cadence} |"
        )
    return "\n".join(lines)


def draw_contenders(path: Path, runs: Runs, shape: str, rows: int) -> None:
    """Wall and CPU seconds of each contender, whole process."""
    shown = _of(runs, shape)
    figure = Figure(figsize=(8, 0.6 * len(shown) + 1.2), layout="constrained")
    axes = figure.subplots()
    places = range(len(shown))
    axes.barh([place - 0.2 for place in places], [run.wall for _, run in shown], 0.4, label="wall")
    axes.barh([place + 0.2 for place in places], [run.cpu for _, run in shown], 0.4, label="CPU")
    axes.set_yticks(list(places), [_WHAT[name] for name, _ in shown])
    axes.invert_yaxis()
    axes.set_xlabel(f"seconds for {rows:,} rows, whole process")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=110)


def _of(runs: Runs, shape: str) -> list[tuple[str, Measured]]:
    median_runs = medians(runs)
    return [(name, median_runs[name, shape]) for name in _SHOWN if (name, shape) in median_runs]
