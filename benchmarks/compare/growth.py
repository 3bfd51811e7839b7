"""The growth of a row's cost: one thing at a time is changed against the same base."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.compare.arena import Arena
from benchmarks.compare.data import TINY, Shape

_FILES_A_BATCH = 5


def growth(arena: Arena, rows: int) -> str:
    """A Markdown row per change: rows a second, CPU a row and peak memory of log + first results."""
    base = Shape(rows)
    changes: list[tuple[str, str, Shape, int]] = [
        ("base: 16,000 keys, 168 bytes, 500,000 rows a batch", "tidemark", base, _FILES_A_BATCH),
        ("1,000 keys", "tidemark", replace(base, keys=1_000), _FILES_A_BATCH),
        ("256,000 keys", "tidemark", replace(base, keys=256_000), _FILES_A_BATCH),
        ("1,024 bytes", "tidemark", replace(base, width=1_024), _FILES_A_BATCH),
        ("8 times as far out of order", "tidemark", replace(base, disorder=8), _FILES_A_BATCH),
        ("every row in 5 windows", "sliding", base, _FILES_A_BATCH),
        ("10,000 rows a batch", "tidemark", replace(base, a_file=10_000), 1),
        ("100,000 rows a batch", "tidemark", base, 1),
        ("1,000,000 rows a batch", "tidemark", base, 10),
    ]
    lines = ["| change | rows/s | CPU µs a row | peak MB |", "|---|---|---|---|"]
    # The CPU of starting a process is taken off, since it does not grow with the rows.
    started = arena.run("first", TINY, 1).cpu
    for what, contender, shape, files in changes:
        run = arena.run(contender, shape, files)
        each = (run.cpu - started) / rows * 1e6
        lines.append(f"| {what} | {rows / run.result['seconds']:,.0f} | {each:.1f} | {run.peak / 2**20:,.0f} |")
    return "\n".join(lines)
