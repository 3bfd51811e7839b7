"""Small lakes as an earlier release left them: `python -m tests.support.old_lake NAME FILE.tar.gz` makes one of today.

It is made anew only beside the old ones, never in their place: what they are for is that they are old.
"""

from __future__ import annotations

import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from streaming import (
    BoundedOutOfOrderness,
    CoGrouped,
    Delivery,
    Enriched,
    Files,
    Joined,
    Json,
    JsonLines,
    Keyed,
    Lake,
    Pipeline,
    Selected,
    SessionWindow,
    Side,
    Stream,
    Table,
    Tumbling,
    Windowed,
    WindowJoined,
    agg,
    drain,
    epoch_millis,
    start_session,
)
from streaming.declare import Operator
from streaming.operations.savepoint import savepoint
from tests.support.feeds import readings
from tests.support.instants import NOW, T0
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


Drain = Mapping[str, Sequence[list[Any]]]
"""Batches that are there at once, by stream."""


@dataclass(frozen=True)
class OldLake:
    """Pipelines with what was in their lake before (`old`), and what comes after (`new`).

    A pipeline may follow tables of those before it. What is old was corrected for the operators of `corrected` alone.
    """

    pipelines: tuple[Pipeline, ...]
    old: tuple[Drain, ...]
    new: tuple[Drain, ...]
    corrected: tuple[Operator, ...]

    def fill(self, spark: SparkSession, lake: Lake) -> None:
        """Everything that is old, corrected as far as it was, and a savepoint."""
        self.take(spark, lake, self.old)
        for operator in self.corrected:
            testing.correct(spark, lake, operator, now=lambda: NOW)
        for pipeline in self.pipelines:
            savepoint(lake, pipeline, "before", lambda: NOW)

    def go_on(self, spark: SparkSession, lake: Lake) -> None:
        """Everything that is new, to the end, corrected."""
        self.take(spark, lake, self.new, end_of_input=True)
        for pipeline in self.pipelines:
            for operator in pipeline.operators:
                testing.correct(spark, lake, operator, now=lambda: NOW)

    def take(self, spark: SparkSession, lake: Lake, drains: Sequence[Drain], *, end_of_input: bool = False) -> None:
        """Drain the pipelines as often as told."""
        streams = {stream.name: stream for pipeline in self.pipelines for stream in pipeline.streams}
        for number, batches_by_stream in enumerate(drains, 1):
            for name, batches in batches_by_stream.items():
                testing.land_all(lake, streams[name], *batches)
            ends = end_of_input and number == len(drains)
            for pipeline in self.pipelines:
                drain(spark, lake, pipeline, end_of_input=ends, now=lambda: NOW)


of_one_log = OldLake(
    (Pipeline(kept, (by_ten, visits, totals), deliveries=(Delivery("kept_out", kept, JsonLines("exports/kept")),)),),
    ({"kept": [*map(readings, OLD)]},),
    ({"kept": [*map(readings, NEW)]},),
    (by_ten,),
)


def met(key: Any, start: int, end: int, left: Sequence[Any], right: Sequence[Any]) -> Iterator[Mapping[str, Any]]:
    """How many rows of each side there are."""
    yield {"clicks": len(left), "ads": len(right)}


async def look_up(row: Any, request: Any) -> dict[str, Any]:
    """Every third is not known."""
    if row.n % 3 == 0:
        raise LookupError(f"{row.n} is unknown")
    return {"doubled": 2 * row.n}


clicks, ads = (
    Stream(
        name,
        Files(f"landing/{name}", files_per_batch=1),
        Json("id string, at timestamp not null, n bigint"),
        "at",
        BoundedOutOfOrderness("2 seconds", max_ahead="30 days"),
    )
    for name in ("clicks", "ads")
)
odd = Selected("odd", clicks, ("id", "at", "n"), where="n % 2 = 1", sides={"even": Side(("id", "n"), "n % 2 = 0")})
followed = Stream("followed", Table(odd), Json("id string, at timestamp not null, n bigint"), "at", clicks.clock)
by_five = Windowed("by_five", followed, Tumbling("5 seconds"), {"rows": agg.count(), "n": agg.sum("n")}, by=("id",))
paid = Joined("paid", clicks, ads, ("id",), ("-5 seconds", "5 seconds"), "left", {"click": "left_n", "ad": "right_n"})
beside = WindowJoined("beside", clicks, ads, ("id",), Tumbling("10 seconds"), {"a": "left_n", "b": "right_n"}, "outer")
at_once = CoGrouped("at_once", clicks, ads, ("id",), SessionWindow("3 seconds"), "clicks bigint, ads bigint", met)
told = Enriched("told", clicks, look_up, {"doubled": "bigint"}, select=("id", "n"))


def _batch(drawn: str) -> list[list[dict[str, Any]]]:
    return [[{**row, "n": int(row.pop("value"))} for row in testing.timeline(drawn, T0)]]


of_every_kind = OldLake(
    (
        Pipeline(
            name="every_kind",
            streams=(clicks, ads),
            operators=(odd, paid, beside, at_once, told),
            deliveries=(
                Delivery("paid_out", paid, JsonLines("exports/paid"), "current", select=("click", "ad")),
                Delivery("beside_out", beside, JsonLines("exports/beside"), "current"),
            ),
        ),
        Pipeline(followed, (by_five,)),
    ),
    (
        {"clicks": _batch("a@1=1, b@2=2, a@4=3"), "ads": _batch("a@3=1, b@11=2")},
        {"clicks": _batch("a@14=5, c@16=6"), "ads": _batch("a@16=4, c@9=5")},
        {"clicks": _batch("b@2.5=7, a@31=9"), "ads": _batch("c@33=6, a@3.5=7")},
    ),
    (
        {"clicks": _batch("a@35=11, b@44=12"), "ads": _batch("b@46=8")},
        {"clicks": _batch("a@4.5=13, c@70=15"), "ads": _batch("c@71=10, b@2=9")},
    ),
    (by_five, beside, at_once),
)

LAKES = {"0.1.0": of_one_log, "0.1.0-every-kind": of_every_kind}
"""By the names of their archives."""


def unpack(archive: Path, folder: Path) -> Lake:
    """The lake in an archive, below the folder."""
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return Lake(str(folder / "lake"))


def main(name: str, target: Path) -> None:
    """Make a lake and pack it."""
    with tempfile.TemporaryDirectory() as folder:
        spark = start_session()
        try:
            LAKES[name].fill(spark, Lake(f"{folder}/lake"))
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

    old_lake.main(sys.argv[1], Path(sys.argv[2]))
