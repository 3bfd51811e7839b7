"""The layout of the log of a stream with a key: `python -m benchmarks.revisions_layout`, in some minutes.

A year of orders comes in one batch; then each batch has 1,000 updates of random orders of the year. Two lakes take the
same batches in turn, in one warm process: in one the log has a file or a few for each batch, as it is created, in the
other it is partitioned by day, as it was before 0.2. The CPU is that of the process and all that it has started.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random

from pyspark.sql import functions as F

from benchmarks.compare.contenders import session
from benchmarks.demands import begin, console
from benchmarks.processes import cpu_seconds
from streaming import BoundedOutOfOrderness, Files, Json, Lake, Pipeline, Stream, Tumbling, Windowed, agg, drain
from streaming.base import DAY
from streaming.log import log_schema, read_log, rejected
from streaming.tables import delta

_FIRST = datetime(2025, 1, 1, tzinfo=UTC)
_DAYS = 365


class Orders:
    """A lake of orders of a year, whose log is partitioned by day or not."""

    def __init__(self, folder: Path, name: str, *, by_day: bool) -> None:
        self.name = name
        self._landing, self._lake = folder / name.replace(" ", "_") / "landing", Lake(str(folder / name / "lake"))
        self._landing.mkdir(parents=True)
        self.stream = Stream(
            name="orders",
            source=Files(str(self._landing)),
            format=Json("id bigint, version bigint, at timestamp, country string, amount decimal(12, 2)"),
            event_time="at",
            clock=BoundedOutOfOrderness("1 hour"),
            key=("id",),
            sequence="version",
        )
        by_hour = Windowed("by_day", self.stream, Tumbling("1 day"), {"orders": agg.count()})
        self._pipeline = Pipeline(self.stream, (by_hour,))
        self.uri = self._lake.log(self.stream.revisions)
        if by_day:
            schema = log_schema(session(), self.stream.revisions)
            delta.create(self.uri, schema, append_only=True, description="by day", partition_by=(DAY,))

    def drain(self, number: int, lines: str) -> tuple[float, float, int]:
        """The CPU and the seconds of a batch with these lines, and the files that it adds to the log."""
        (self._landing / f"{number:05}.json").write_text(lines)
        before = self.files()
        cpu, seconds = _cost(partial(drain, session(), self._lake, self._pipeline))
        return cpu, seconds, self.files() - before

    def files(self) -> int:
        """The files of the log; 0 before there is one."""
        table = delta.open_table(self.uri)
        return 0 if table is None else len(table.file_uris())

    def report(self, state: str) -> None:
        """Print what it costs to open the log, to read all of it, and its rejected rows."""
        log = partial(read_log, session(), self._lake, self.stream.revisions)
        whole, _ = _cost(lambda: log().agg(F.sum("amount"), F.max("at")).collect())
        refused, _ = _cost(lambda: rejected(log()).count())
        opened, _ = _cost(partial(delta.opened, self.uri))
        size = sum(delta.opened(self.uri).get_add_actions(flatten=True)["size_bytes"].to_pylist())
        console.print(
            f"{self.name}, {state}: {self.files():,} files, {size / 1e6:.1f} MB; CPU opened {opened * 1000:,.0f} ms, "
            f"all rows {whole:.2f} s, rejected rows {refused:.2f} s"
        )

    def compact(self) -> None:
        """Compact the log, and print what that costs."""
        cpu, _ = _cost(delta.opened(self.uri).optimize.compact)
        console.print(f"{self.name}: compaction {cpu:.2f} s of CPU")


def _cost(work: Callable[[], object]) -> tuple[float, float]:
    began, at = cpu_seconds(), time.monotonic()
    work()
    return cpu_seconds() - began, time.monotonic() - at


def main() -> None:
    """Measure both layouts, and print a line for each state of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orders-a-day", type=int, default=200)
    parser.add_argument("--updates", type=int, default=8)
    arguments, folder = begin(parser, "bench")
    lakes = [Orders(folder, name, by_day=by_day) for name, by_day in (("a file a batch", False), ("by day", True))]
    drawn, orders = Random(1), _DAYS * arguments.orders_a_day
    placed = [_FIRST + timedelta(days=number % _DAYS, seconds=drawn.randrange(86_400)) for number in range(orders)]
    costs: dict[str, list[tuple[float, float, int]]] = {each.name: [] for each in lakes}
    for batch in range(arguments.updates + 2):
        changed = range(orders) if batch == 0 else drawn.sample(range(orders), 1_000)
        lines = "".join(_line(number, batch, placed[number], drawn) for number in changed)
        for each in lakes:
            costs[each.name].append(each.drain(batch, lines))
    for each in lakes:
        # The first batch has every order, and the second warms up what the others do.
        cpu, seconds, files = (statistics.mean(values) for values in zip(*costs[each.name][2:], strict=True))
        console.print(f"{each.name}: a batch {cpu:.2f} s of CPU, {seconds:.2f} s, {files:,.0f} files of the log")
    for state in ("as it is written", "compacted"):
        for each in lakes:
            each.report(state)
            if state == "as it is written":
                each.compact()


def _line(number: int, version: int, at: datetime, drawn: Random) -> str:
    row = {"id": number, "version": version, "at": at.isoformat(), "country": f"c{number % 9}"}
    return json.dumps({**row, "amount": drawn.randrange(10**6)}) + "\n"


if __name__ == "__main__":
    main()
