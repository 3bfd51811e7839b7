"""A day of flights on a standalone Spark cluster of this machine, whose parts are killed in turn in mid-batch.

`make cluster` runs it: a master, two workers of one core, and a driver that drains what has arrived. After an executor,
a worker, the master and the driver were killed, every table and every delivered file must be what `local[2]` leaves on
a disk. `make cluster S3=1` has the cluster's lake, landing folder and checkpoints in a store that speaks S3.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.demands import PROJECT, Demand, begin, conclude, console
from benchmarks.pipelines.connections import aircraft, by_origin, cluster_flights, connections, pipeline
from benchmarks.processes import until
from platform_assets.demo.feeds.flights import feed_flights
from streaming import Lake
from streaming.audit.laws import audit
from streaming.lake import Settings
from streaming.spark.session import start_session
from streaming.tables import delta, s3, storage
from tests.support.object_store import logged_server, new_bucket
from tests.support.standalone import Standalone

VICTIMS = ("nobody", "executor", "worker", "master", "driver")
_DAY = date(2013, 1, 15)
_MID_BATCH_WITHIN, _DRAINS_WITHIN = 180.0, 900.0
_OWN = ("_ingested_at", "_written_at", "_corrected_at", "modified")
"""Fields that differ from one run to the next: when a row was written, and when its file."""
_SECOND = 1.0
"""The times by which files are ordered are whole seconds in a store."""


class Run:
    """A lake, and drains of it in processes of their own, whose words go to a file of `folder`."""

    def __init__(self, folder: Path, master: str, home: str = "") -> None:
        self.lake = Lake(home or str(folder / "lake"))
        folder.mkdir(parents=True)
        self._log = folder / "driver.log"
        self._environment = os.environ | {
            "TIDEMARK_MASTER": master,
            "TIDEMARK_HOME": self.lake.root,
            "TIDEMARK_SPARK_DRIVER_MEMORY": "1g",
            "TIDEMARK_SPARK_EXECUTOR_MEMORY": "768m",
            "TIDEMARK_SPARK_DRIVER_HOST": "127.0.0.1",
            # Both runs cut their steps alike, though nothing depends on it.
            "TIDEMARK_SPARK_SQL_SHUFFLE_PARTITIONS": "2",
        }

    def land(self, files: Sequence[Path]) -> None:
        """Put copies of files in the landing folder, one after the other: the times of the copies order them."""
        for file in files:
            storage.put_whole(f"{cluster_flights.source.location(self.lake)}/{file.name}", file.read_bytes())
            time.sleep(_SECOND)

    def begin(self, *options: str) -> subprocess.Popen[bytes]:
        """A driver that drains what has arrived."""
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-c", "from platform_assets.cli import main; main()", "run", pipeline.name, *options],
                cwd=PROJECT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def drain(self, *options: str) -> None:
        """Drain to the end.

        Raises:
            RuntimeError: the driver failed, with what it said last.
        """
        self.ends_well(self.begin(*options))

    def ends_well(self, driver: subprocess.Popen[bytes]) -> None:
        """Wait for a driver.

        Raises:
            RuntimeError: it failed, with what it said last.
        """
        if driver.wait(_DRAINS_WITHIN) != 0:
            raise RuntimeError(f"the driver ended with {driver.returncode}: {self._log.read_text()[-2000:]}")

    def is_in_mid_batch(self) -> bool:
        """True if Spark has planned a batch that is not committed."""
        checkpoint = self.lake.checkpoint(cluster_flights, "log")
        return self._newest(f"{checkpoint}/offsets") > self._newest(f"{checkpoint}/commits")

    @staticmethod
    def _newest(folder: str) -> int:
        return max((int(name) for name in storage.files_in(folder) if name.isdecimal()), default=-1)

    def tables(self) -> Iterator[tuple[str, Counter[str]]]:
        """The rows of each table, and the lines of the delivered files, each with how often it is there."""
        for uri in (
            self.lake.log(cluster_flights),
            *(self.lake.table(operator) for operator in (by_origin, aircraft, connections)),
        ):
            table = delta.open_table(uri)
            assert table is not None, f"no table at {uri}"
            rows = delta.contents(table)
            # The batch of a pair is the number of the step that brought it, and another cut has other steps.
            kept = rows.drop_columns(["_batch"]) if uri == self.lake.table(connections) else rows
            yield uri.rpartition("/")[2], Counter(map(self._text, kept.to_pylist()))
        delivered, lines = self.lake.path("out/aircraft"), Counter[str]()
        for name, _ in storage.walked(delivered, lambda part: part != "_delivered"):
            if name.endswith(".json"):
                lines.update(storage.lines(f"{delivered}/{name}") or ())
        yield "delivered", lines

    def _text(self, row: dict[str, Any]) -> str:
        # The two lakes lie in different places; a pair has the origins of both its rows.
        return json.dumps(_comparable(row), default=str, sort_keys=True).replace(_place(self.lake.root), "")


def _comparable(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: _comparable(each) for name, each in value.items() if name not in _OWN}


def _place(root: str) -> str:
    """A lake's root as the log tells the paths of files in it."""
    return root if s3.on_s3(root) else f"file:{root}"


def _parts(files: Sequence[Path], count: int) -> list[Sequence[Path]]:
    size = -(-len(files) // count)
    return [files[start : start + size] for start in range(0, len(files), size)]


def _round(run: Run, cluster: Standalone, victim: str) -> float:
    """Drain what has arrived while `victim` is killed in the midst of a batch; the seconds that the drain took."""
    started = time.monotonic()
    driver = run.begin()
    if victim != "nobody":
        if until(lambda: cluster.has_executors and run.is_in_mid_batch(), _MID_BATCH_WITHIN) is None:
            raise TimeoutError(f"no batch was seen in its midst (driver: {driver.poll()})")
        if victim == "driver":
            os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()
            driver = run.begin()
        else:
            cluster.kill(victim)
            cluster.start()
    run.ends_well(driver)
    return time.monotonic() - started


@contextmanager
def _store() -> Iterator[str]:
    """A running store, which this process and those it starts know by their environment; a lake's place in it."""
    with logged_server() as (endpoint, _):
        os.environ |= {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "AKIA-OF-THE-CLUSTER",
            "AWS_SECRET_ACCESS_KEY": "of-the-cluster",
        }
        yield f"s3://{new_bucket(endpoint).name}/lake"


def _compared(shared: Run, alone: Run) -> Iterator[Demand]:
    for (name, there), (_, here) in zip(shared.tables(), alone.tables(), strict=True):
        lost, more = (here - there).total(), (there - here).total()
        measured = f"{there.total():,} rows, {lost} missing, {more} more"
        yield f"{name}: as on one machine", measured, bool(there) and not lost + more


def main() -> None:
    """Feed, run on one machine and on the cluster, compare, audit, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--s3", action="store_true", help="the cluster's lake lies in a store that speaks S3")
    arguments, folder = begin(parser, "soak/cluster")
    feed_flights(folder / "fed", _DAY, 1)
    files = sorted((folder / "fed").glob("*.json"), key=lambda file: file.stat().st_mtime_ns)

    with ExitStack() as services:
        home = services.enter_context(_store()) if arguments.s3 else ""
        cluster = services.enter_context(Standalone(folder / "spark", arguments.workers))
        shared = Run(folder / "cluster", cluster.url, home)
        demands: list[Demand] = []
        for victim, part in zip(VICTIMS, _parts(files, len(VICTIMS)), strict=True):
            shared.land(part)
            took = f"{_round(shared, cluster, victim):.0f} s"
            console.print(f"{victim:10} {len(part)} files in {took}", highlight=False)
            if victim != "nobody":
                demands.append((f"goes on after the {victim} is killed", took, True))
        shared.drain("--end-of-input")

        alone = Run(folder / "local", "local[2]")
        alone.land(files)
        alone.drain("--end-of-input")

        spark = start_session(Settings(home=shared.lake.root))
        broken = [finding for finding in audit(spark, shared.lake, pipeline) if finding.broken]
        spark.stop()
        demands += [*_compared(shared, alone), ("every law of the audit", f"{len(broken)} broken", not broken)]
    conclude(folder / "cluster.md", demands)


if __name__ == "__main__":
    main()
