"""A small lake as an earlier release left it: `python -m tests.support.old_lake FILE.tar.gz` makes one of this release.

It is made anew only beside the old ones, never in their place: what they are for is that they are old.
"""

from __future__ import annotations

import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from streaming import (
    BoundedOutOfOrderness,
    Delivery,
    Files,
    Json,
    JsonLines,
    Keyed,
    Lake,
    Pipeline,
    SessionWindow,
    Stream,
    Tumbling,
    Windowed,
    agg,
    epoch_millis,
    start_session,
)
from streaming.operations.savepoint import savepoint
from tests.support.feeds import readings
from tests.support.instants import NOW
from tests.support.runs import run
from tidemark import testing

OLD = ("a@1=10, b@2=20, c@3", "a@12=11, b@14=21, a@13=12", "a@2=13, c@31=5, b@33=6")
"""What was in it: the third batch begins with a late row."""
NEW = ("a@35=7, b@41=9, d@42=1", "a@3=2, c@70=4, d@71=8")
"""What comes after it."""

kept = Stream(
    name="kept",
    source=Files("landing/kept", files_per_batch=1),
    format=Json("id string not null, timestamp bigint not null, temperature double"),
    derived={"event_time": epoch_millis("timestamp")},
    event_time="event_time",
    clock=BoundedOutOfOrderness("2 seconds"),
)
by_ten = Windowed("kept_by_ten", kept, Tumbling("10 seconds"), {"rows": agg.count(), "m": agg.mean("temperature")})
visits = Windowed("kept_visits", kept, SessionWindow("5 seconds"), {"rows": agg.count()}, by=("id",))


def add_up(key: Any, row: Any) -> None:
    key.total = (key.total or 0) + 1
    key.warmest = max(key.warmest or 0.0, row.temperature or 0.0)
    key.emit(total=key.total, warmest=key.warmest)


totals = Keyed(
    "kept_totals", kept, ("id",), "total bigint, warmest double", "total bigint, warmest double", add_up, version=1
)
out = Delivery("kept_out", kept, JsonLines("exports/kept"))
pipeline = Pipeline(kept, (by_ten, visits, totals), deliveries=(out,))


def fill(spark: SparkSession, lake: Lake) -> None:
    """Everything of OLD, corrected as far as it was late, and a savepoint."""
    run(spark, lake, pipeline, *map(readings, OLD))
    testing.correct(spark, lake, by_ten, now=lambda: NOW)
    savepoint(lake, pipeline, "before", lambda: NOW)


def unpack(archive: Path, folder: Path) -> Lake:
    """The lake in an archive, below the folder."""
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return Lake(str(folder / "lake"))


def main(target: Path) -> None:
    """Make a lake and pack it."""
    with tempfile.TemporaryDirectory() as folder:
        spark = start_session()
        try:
            fill(spark, Lake(f"{folder}/lake"))
        finally:
            spark.stop()
        shutil.rmtree(f"{folder}/lake/_logs", ignore_errors=True)
        with tarfile.open(target, "w:gz") as packed:
            packed.add(f"{folder}/lake", "lake", filter=_anonymous)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    # By its name: the lake records where the function is, and it is not in `__main__` for whoever reads it.
    from tests.support import old_lake

    old_lake.main(Path(sys.argv[1]))
