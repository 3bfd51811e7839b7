"""Where each part of a stream's ingest is computed, as rows of a table, and what follows from that."""

from __future__ import annotations

from collections.abc import Sequence

from streaming.lake import IngestMode
from streaming.log import Place

PARTS = ("part", "name", "where", "why there")
_TASKS, _BEFORE, _AFTER, _SPARK = "tasks", "Spark, and on to tasks", "Spark, over what tasks have written", "Spark"
_WORDS = {
    "late": "late rows",
    "unassigned": "rows without a window",
    "time of a row": "time of the source",
    "source partition": "source partition",
}


def part_row(part: Place) -> tuple[str, str, str, str]:
    """The part, where it is computed, and why there."""
    where = _TASKS if not part.reason else _AFTER if part.after else _BEFORE if part.before else _SPARK
    name = f"{part.name}: {part.sql}" if part.sql and part.name else part.name or part.sql
    return _WORDS.get(part.kind, part.kind), name, where, part.reason or "proven to be the same in Arrow"


def summary(stream: str, parts: Sequence[Place], mode: IngestMode) -> str:
    """Who ingests the stream, in words."""
    if mode == "careful":
        return f"TIDEMARK_INGEST=careful: Spark ingests all of {stream}, whatever tasks could."
    to_spark = [part for part in parts if part.reason]
    if not all(part.after or part.before for part in to_spark):
        return (
            f"Spark ingests all of {stream}, because of what stands at 'Spark': a batch costs it two to three times as "
            "much CPU as tasks."
        )
    told = f"Tasks ingest {stream}; rows in doubt, such as one that a rule divides by zero for, are judged by Spark."
    if names := ", ".join(part.name for part in to_spark if part.kind == "rule"):
        told += (
            f" {names} is judged by Spark afterwards, and where it refuses a row, Spark ingests that batch and those "
            "that follow until one has no rejected row."
        )
    return told
