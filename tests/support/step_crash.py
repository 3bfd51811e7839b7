"""Steps that end by a real SIGKILL between two of their commits: `python -m tests.support.step_crash <lake> <point>`.

What they follow lies in the log already. The session is lent: steps write in Python.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from streaming import Lake
from streaming.views import steps
from tests.support.crash import Point, die_at
from tests.support.pipelines.rising import pipeline
from tests.support.running import running

_COMMIT = ("deltalake:DeltaTable", "create_write_transaction")

_TABLES = ("folded", "folded_state", "updated", "updated_updates", "rises", "rises_before", "rises_state")

POINTS: dict[str, Point] = {
    **{f"after the commit of {table}": Point("", *_COMMIT, 1, f"/meters/{table}", after=True) for table in _TABLES},
    # Their files lie there, and nothing names them.
    **{
        f"before the commit of {table}": Point("", *_COMMIT, 1, f"/meters/{table}")
        for table in ("folded", "updated_updates", "rises")
    },
}
"""After every commit of every step, which is the first of its table in a run."""


def follow(spark: SparkSession, lake: Lake) -> None:
    """Let every operator follow the log, and fold rows whenever they can be."""
    steps.FOLDED_FROM = 1
    with running(spark, lake, pipeline) as run:
        run.step_all()
        run.catch_up()


if __name__ == "__main__":
    die_at(POINTS, follow)
