"""The cost of a batch, as rows of a table, and the setting to change first."""

from __future__ import annotations

from streaming import Pipeline
from streaming.operations import APPEND, JUDGE, PARSE, PLAN, TASKS, Bench, Stage

STAGES = ("stage", "a batch, ms", "a row, µs", "share")
_MOSTLY_FIXED = 0.5


def stage_row(stage: Stage, bench: Bench) -> tuple[str, ...]:
    """Fixed and growing cost of a stage, and its share of the usual batch."""
    share = stage.seconds(bench.rows_a_batch) / bench.seconds(bench.rows_a_batch)
    return stage.name, f"{stage.fixed * 1e3:,.0f}", f"{stage.a_row * 1e6:,.1f}", f"{share:.0%}"


def rate(bench: Bench, rows: int) -> str:
    """Rows a second in batches of so many."""
    return f"{rows / bench.seconds(rows):,.0f} rows/s in batches of {rows:,}"


def advice(bench: Bench, pipeline: Pipeline) -> str:
    """Which setting of the pipeline to change for more rows a second."""
    costly = bench.costliest.name
    if bench.fixed_share > _MOSTLY_FIXED:
        return (
            f"{bench.fixed_share:.0%} of a batch does not depend on its rows, so let batches grow: "
            f"{pipeline.stream.source.larger_batches}, or lengthen "
            f"trigger={pipeline.trigger!r}. From {bench.balanced:,} rows on, rows cost more than the batch."
        )
    if costly == PARSE:
        return (
            "Most goes into reading and parsing: a field that is not declared costs nothing, and a string field, or "
            "one with a nested type, costs more than a number."
        )
    if costly == JUDGE:
        return "Most goes into rules and derived columns: regular expressions are what costs most in them."
    if costly == TASKS:
        return (
            "Most goes into the tasks that read, judge and write: a string field, or one with a nested type, costs "
            "more than a number, and keep_raw=True writes each payload a second time."
        )
    if costly == APPEND and pipeline.stream.keep_raw:
        return "Most goes into writing the log: keep_raw=True writes each payload a second time."
    if costly in (APPEND, PLAN):
        return f"Most goes into {costly}: batches are large enough, and a faster disk or more cores are what is left."
    return (
        f"Most goes into view {costly!r}: a row costs it once per window that it is in, so a longer slide or fewer "
        "keys make it cheaper; or give it a pipeline, and so a process, of its own."
    )
