"""Random kills of everything a stream under Dagster consists of; after each, no orphan, one writer, and it goes on.

`make kills ROUNDS=n` runs it, with a webserver, a daemon and their code servers of its own, and a ticket service that
misbehaves. What the joins and the enrichment of the stream have told in the end is counted once more without Spark.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import psutil
from dagster_graphql import DagsterGraphQLClient, DagsterGraphQLClientError

from benchmarks.committed import newest_in_logs
from benchmarks.complaints import Complaints, Helpdesk, TicketService, TimedReadings
from benchmarks.demands import PROJECT, Demand, begin, conclude, console
from benchmarks.pipelines.helpdesk import TICKETS, complaints, helpdesk_meters, pipeline
from benchmarks.processes import command_line, family, jvms, orphans, until, writers
from platform_assets.demo.feeds import free_port
from streaming import Lake
from streaming.audit.laws import audit
from streaming.base.intervals import utc_now
from streaming.log.batches import read_batches
from streaming.service.drain import drain
from streaming.service.overview import look, request
from streaming.spark.session import start_session
from tests.support.http_server import http_server

_LOCATION = "benchmarks.kills_location"
_STARTS_WITHIN, _RECOVERS_WITHIN, _GOES_ON_WITHIN = 180.0, 120.0, 30.0
_READINGS_A_FILE, _COMPLAINTS_A_FILE, _FILE_EVERY = 100, 5, 1.0
_OF_THE_STREAM = ("driver", "JVM", "worker")
_OF_DAGSTER = ("daemon", "webserver", "code server")


@dataclass(frozen=True)
class Round:
    """One kill: `seconds` until the next commit (of the same process, where only Dagster was hit), if there was one."""

    victim: str
    seconds: float | None
    orphans: list[str]


class Kills:
    """A pipeline that Dagster runs, and what is killed of it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.lake = Lake(str(folder / "lake"))
        self.readings = TimedReadings(Path(helpdesk_meters.source.location(self.lake)), seed)
        self.complaints = Complaints(Path(complaints.source.location(self.lake)), seed)
        self.rounds: list[Round] = []
        self.writers: Counter[int] = Counter()
        """The numbers of stream processes that lived at once, each with how often it was seen."""
        self._random = random.Random(seed)
        self._over = threading.Event()
        self._output = (folder / "output.log").open("ab")
        self._port = free_port()
        self._environment = {
            **os.environ,
            "DAGSTER_HOME": str(folder / "dagster"),
            "TIDEMARK_HOME": self.lake.root,
        }
        location = ["-m", _LOCATION, "-d", str(PROJECT)]
        self._commands = {
            "webserver": ["dagster_webserver", *location, "-h", "127.0.0.1", "-p", str(self._port)],
            "daemon": ["dagster._daemon", "run", *location],
        }
        self._services: dict[str, subprocess.Popen[bytes]] = {}

    def run(self, rounds: int) -> None:
        """All rounds, one after the other; then the stream and Dagster are ended."""
        (Path(self._environment["DAGSTER_HOME"])).mkdir(parents=True)
        subprocess.run(
            [sys.executable, "-c", "from platform_assets.instance import open_instance; open_instance().dispose()"],
            env=self._environment,
            check=True,
        )
        threads = [threading.Thread(target=job) for job in (self._feed, self._count_writers)]
        for thread in threads:
            thread.start()
        try:
            self._keep_services()
            if until(self._launched, _STARTS_WITHIN) is None or until(self._newest, _STARTS_WITHIN) is None:
                raise TimeoutError("the stream did not start")
            for number in range(rounds):
                self._kill()
                done = self.rounds[-1]
                console.print(
                    f"{number + 1:>3}  {done.victim:22}  "
                    f"{'-' if done.seconds is None else f'{done.seconds:.1f} s'}  {' '.join(done.orphans)}",
                    highlight=False,
                )
                self._keep_services()
        finally:
            self._over.set()
            for thread in threads:
                thread.join()
            request(self.lake, pipeline, "stop", "kills", utc_now())
            until(lambda: look(self.lake, pipeline).holder is None, 60)
            for service in self._services.values():
                service.terminate()
                service.wait()

    def _kill(self) -> None:
        victim = self._random.choice(_OF_THE_STREAM + _OF_DAGSTER)
        number = self._random.choice((signal.SIGKILL, signal.SIGTERM))
        process = look(self.lake, pipeline).process
        assert process is not None
        pids = self._pids(victim, process.pid)
        hit = victim in _OF_THE_STREAM
        members = family(process.pid) if hit else [member for pid in pids for member in family(pid)]
        started = time.monotonic()
        for pid in pids:
            os.kill(pid, number)
        left = orphans(members) if hit else []
        # The killed process may have committed more than it had told.
        newest = newest_in_logs(self.lake, pipeline)

        def goes_on() -> bool:
            now = look(self.lake, pipeline).process
            return now is not None and (now.newest_batch or 0) > newest and (now.pid != process.pid) == hit

        recovered = until(goes_on, _RECOVERS_WITHIN if hit else _GOES_ON_WITHIN)
        seconds = None if recovered is None else time.monotonic() - started
        self.rounds.append(Round(f"{victim} {number.name}", seconds, left))
        # So that the next kill hits another phase of the stream than its start.
        self._over.wait(self._random.uniform(0, 3))

    def _pids(self, victim: str, driver: int) -> list[int]:
        if victim == "driver":
            return [driver]
        if victim == "worker":
            return [psutil.Process(driver).ppid()]
        if victim == "JVM":
            return [member.pid for member in jvms(family(driver))][:1]
        if victim == "code server":
            servers = [family(service.pid)[1:] for service in self._services.values()]
            return [member.pid for members in servers for member in members if "grpc" in command_line(member)][:1]
        return [self._services[victim].pid]

    def _keep_services(self) -> None:
        """Start every service again that is gone, as an init system does."""
        for name, command in self._commands.items():
            service = self._services.get(name)
            if service is None or service.poll() is not None:
                self._services[name] = subprocess.Popen(
                    [sys.executable, "-W", "ignore", "-m", *command],
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=self._output,
                    stderr=self._output,
                    start_new_session=True,
                )

    def _launched(self) -> bool:
        try:
            client = DagsterGraphQLClient("127.0.0.1", port_number=self._port)
            client.submit_job_execution(f"{pipeline.name}_stream", repository_location_name=_LOCATION)
        except DagsterGraphQLClientError:
            return False
        return True

    def _newest(self) -> int:
        process = look(self.lake, pipeline).process
        return 0 if process is None else process.newest_batch or 0

    def _feed(self) -> None:
        while not self._over.wait(_FILE_EVERY):
            self.readings.land(_READINGS_A_FILE, datetime.now(UTC))
            self.complaints.land(_COMPLAINTS_A_FILE, datetime.now(UTC))

    def _count_writers(self) -> None:
        while not self._over.wait(0.2):
            self.writers[writers()] += 1


def _table(kills: Kills, broken: int) -> list[Demand]:
    """Each demand, what was measured, and whether it holds."""
    by_victim: dict[str, list[float | None]] = {}
    for done in kills.rounds:
        by_victim.setdefault(done.victim, []).append(done.seconds)
    demands = []
    for victim, seconds in sorted(by_victim.items()):
        recoveries = [second for second in seconds if second is not None]
        times = f"median {statistics.median(recoveries or [0]):.1f} s, longest {max(recoveries, default=0):.1f} s"
        demands.append((f"goes on after {victim}", f"{len(seconds)} rounds, {times}", len(recoveries) == len(seconds)))
    left = [orphan for done in kills.rounds for orphan in done.orphans]
    streams = (helpdesk_meters, complaints)
    rows = sum(batch.summary.rows for stream in streams for batch in read_batches(kills.lake, stream))
    generated = kills.readings.generated + kills.complaints.generated
    return [
        *demands,
        ("no orphan after 15 s", f"{len(left)} orphans", not left),
        (
            "never two writers",
            f"{kills.writers.total():,} looks, at most {max(kills.writers)} at once",
            max(kills.writers) <= 1,
        ),
        (
            "rows in the log = rows generated",
            f"{rows:,} = {generated:,}",
            rows == generated,
        ),
        ("every law of the audit", f"{broken} broken", not broken),
    ]


def main() -> None:
    """Kill, audit, and write the record; exit 1 where a demand does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=2013)
    arguments, folder = begin(parser)
    service = TicketService()
    with http_server() as server:
        server.answer = service.answer
        os.environ[TICKETS] = server.url
        kills = Kills(folder, arguments.seed)
        kills.run(arguments.rounds)
        spark = start_session()
        drain(spark, kills.lake, pipeline, end_of_input=True)
        service.close()
    helpdesk = Helpdesk(kills.lake, kills.readings, kills.complaints, service)
    helpdesk.correct(spark)
    broken = [finding for finding in audit(spark, kills.lake, pipeline) if finding.broken]
    # The last end is that of the run.
    ends = sum(done.victim.split()[0] in _OF_THE_STREAM for done in kills.rounds) + 1
    demands = [*_table(kills, len(broken)), *helpdesk.demands(spark, ends)]
    (folder / "kills.json").write_text(json.dumps([asdict(done) for done in kills.rounds], indent=1))
    conclude(folder / "kills.md", demands)


if __name__ == "__main__":
    main()
