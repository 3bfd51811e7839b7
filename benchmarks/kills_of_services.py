"""From a topic into a database and a topic, while stream, broker and database are killed or stalled at random.

`make kills-kafka MINUTES=n` runs it with a broker and a Postgres of its own. In the end the database must hold what
was generated, each valid reading once and each window of what is current, and whoever reads the topic the same windows.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import psutil
from confluent_kafka import Producer

from benchmarks.demands import begin, conclude, console
from benchmarks.demands_on_services import Blow, Struck, demands_of
from benchmarks.pipelines import topic_meters
from benchmarks.processes import family, jvms, until
from benchmarks.readings import Readings
from streaming import Lake
from streaming.service.overview import look
from tests.support import postgres
from tests.support.kafka import Broker

_SEND_EVERY, _ROWS = 0.5, 100
_KILL_EVERY, _CORRECT_EVERY = 20.0, 240.0
_RECOVERS_WITHIN = 180.0
_STALLS_FOR = (2.0, 8.0)
_OF_THE_STREAM = ("driver", "JVM", "supervisor")


class Kills:
    """A supervised stream between a broker and a database of its own."""

    def __init__(self, folder: Path, broker: Broker, database: postgres.Server, connection: str, seed: int) -> None:
        self.lake = Lake(str(folder / "lake"))
        self.readings = Readings(seed)
        self.blows: list[Blow] = []
        self.runs: dict[str, list[int]] = {}
        self.unsent: list[str] = []
        self._broker, self._database, self._connection = broker, database, connection
        self._random = random.Random(seed)
        self._over = threading.Event()
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._output = (folder / "output.log").open("ab")
        self._environment = {
            **os.environ,
            "TIDEMARK_HOME": self.lake.root,
            topic_meters.SERVERS: broker.servers,
            topic_meters.CONNECTION: connection,
        }

    def run(self, minutes: float) -> None:
        """Blows for so many minutes; then what is left is worked off, corrected and delivered."""
        self._keep()
        threads = [
            threading.Thread(target=self._send),
            threading.Thread(target=self._repeat, args=(2.0, self._keep)),
            threading.Thread(target=self._repeat, args=(_CORRECT_EVERY, self._correct)),
        ]
        for thread in threads:
            thread.start()
        ends = time.monotonic() + minutes * 60
        try:
            if until(self._delivered, _RECOVERS_WITHIN) is None:
                raise TimeoutError(f"nothing was delivered within {_RECOVERS_WITHIN:.0f} s")
            while time.monotonic() < ends:
                self._over.wait(self._random.uniform(0, _KILL_EVERY))
                self._strike()
                blow = self.blows[-1]
                lasted = "-" if blow.seconds is None else f"{blow.seconds:.1f} s"
                console.print(f"{len(self.blows):>3}  {blow.victim:22}  {lasted}", highlight=False)
        finally:
            self._over.set()
            for thread in threads:
                thread.join()
        name = topic_meters.pipeline.name
        self._tidemark("down", "--drain", name)
        self._tidemark("run", name, "--end-of-input")
        self._tidemark("correct", name)
        # What the corrections changed is delivered by the next run.
        self._tidemark("run", name, "--end-of-input")
        self._tidemark("audit", name)

    def _strike(self) -> None:
        victim = self._random.choice((*_OF_THE_STREAM, "broker", "database", "broker stalls", "database stalls"))
        before, at = self._delivered(), time.monotonic()
        if victim in _OF_THE_STREAM:
            self._kill(victim)
        elif victim == "broker":
            self._broker.kill()
            self._broker.start()
        elif victim == "database":
            self._database.kill()
            self._database.start()
        else:
            pid = (self._broker if victim.startswith("broker") else self._database).pid
            members = family(pid)
            _each(members, psutil.Process.suspend)
            self._over.wait(self._random.uniform(*_STALLS_FOR))
            _each(members, psutil.Process.resume)
        # What was on its way arrives all the same.
        before = max(before, self._delivered())
        recovered = until(lambda: self._delivered() > before, _RECOVERS_WITHIN)
        self.blows.append(Blow(victim, None if recovered is None else time.monotonic() - at))

    def _kill(self, victim: str) -> None:
        process = look(self.lake, topic_meters.pipeline).process
        assert self._supervisor is not None
        pids = {"supervisor": self._supervisor.pid}
        if process is not None:
            pids["driver"] = process.pid
            java = jvms(family(process.pid))
            pids["JVM"] = java[0].pid if java else process.pid
        pid = pids.get(victim, self._supervisor.pid)
        os.kill(pid, self._random.choice((signal.SIGKILL, signal.SIGTERM)))

    def _delivered(self) -> int:
        """The number of readings that the database holds; 0 also where there is no table yet."""
        try:
            return int(postgres.rows(self._connection, "select count(*) from readings")[0][0])
        except postgres.psycopg.Error:
            return 0

    def _send(self) -> None:
        # Longer than any blow, so that a broker that is away loses nothing.
        producer = Producer({"bootstrap.servers": self._broker.servers, "enable.idempotence": True, "log_level": 0})
        while not self._over.wait(_SEND_EVERY):
            for line in self.readings.lines(_ROWS, datetime.now(UTC)):
                producer.produce(topic_meters.TOPIC, line, on_delivery=self._sent)
            producer.poll(0)
        producer.flush(120)

    def _sent(self, error: object, _: object) -> None:
        if error is not None:
            self.unsent.append(str(error))

    def _repeat(self, every: float, job: Callable[[], None]) -> None:
        while not self._over.wait(every):
            job()

    def _keep(self) -> None:
        """Let another supervisor follow one that is gone, as the keeper sensor does."""
        if self._supervisor is None or self._supervisor.poll() is not None:
            self._supervisor = subprocess.Popen(
                [sys.executable, "-m", "streaming.service", "supervise", topic_meters.pipeline.name],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                start_new_session=True,
            )

    def _correct(self) -> None:
        self._tidemark("correct", topic_meters.pipeline.name)

    def _tidemark(self, *arguments: str) -> None:
        completed = subprocess.run(
            [sys.executable, "-c", "from platform_assets.cli import main; main()", *arguments],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            check=False,
        )
        self.runs.setdefault(arguments[0], []).append(completed.returncode)


def _each(members: Iterable[psutil.Process], do: Callable[[psutil.Process], None]) -> None:
    for member in members:
        # A connection of the database may just have ended.
        with suppress(psutil.NoSuchProcess):
            do(member)


def main() -> None:
    """Kill, audit, compare, and write the record; exit 1 where a demand does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=2013)
    arguments, folder = begin(parser)
    broker = Broker(folder / "broker")
    with postgres.server() as database:
        broker.start()
        try:
            broker.create(topic_meters.TOPIC, partitions=3)
            broker.create(topic_meters.WINDOWS)
            connection = database.database()
            kills = Kills(folder, broker, database, connection, arguments.seed)
            kills.run(arguments.minutes)
            (folder / "kills.json").write_text(json.dumps([asdict(blow) for blow in kills.blows], indent=1))
            demands = demands_of(
                Struck(kills.lake, kills.readings, kills.blows, kills.runs, kills.unsent), broker, connection
            )
        finally:
            broker.stop()
    conclude(folder / "kills.md", demands)


if __name__ == "__main__":
    main()
