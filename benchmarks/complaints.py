"""Complaints about meters, a ticket service that misbehaves, and a count of what must come of both without Spark."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zlib import crc32

from pyspark.sql import SparkSession

from benchmarks.demands import Demand
from benchmarks.pipelines.helpdesk import by_window, near_complaints, ticketed
from benchmarks.readings import WINDOW_SECONDS, LandedReadings
from streaming import Lake
from streaming.operators.runtime import runtime_of
from tests.support.http_server import RESET, Answer, Posted

_NEAR = (timedelta(seconds=-2), timedelta(seconds=1))
_REFUSED, _TROUBLE = 2, (12, 17, 20)
"""In a hundred: complaints that never get a ticket; early attempts that fail, are reset, or hang, each up to here."""

_TROUBLED_ATTEMPTS = 2
"""Fewer than there are, so that all but the refused ones get a ticket in the end."""

_HANGS_FOR = 20.0
"""Seconds, longer than an attempt may take."""


class TimedReadings(LandedReadings):
    """Readings in files, which also remember their times by meter."""

    def __init__(self, landing: Path, seed: int) -> None:
        super().__init__(landing, seed)
        self.times: defaultdict[str, list[datetime]] = defaultdict(list)

    def _count(self, meter: str, at: datetime) -> None:
        super()._count(meter, at)
        self.times[meter].append(at)


class Complaints(LandedReadings):
    """Complaints in files, as late and as damaged as readings; `valid` has the meter and time of each number."""

    def __init__(self, landing: Path, seed: int) -> None:
        super().__init__(landing, seed)
        self.valid: dict[int, tuple[str, datetime]] = {}

    def _line(self, now: datetime) -> str:
        number = len(self.valid)
        meter, at, damaged = self._drawn(now)
        if damaged:
            self.damaged += 1
            return f'{{"meter": "{meter}", "at": "{at.isoformat()}", "number": -1}}\n'
        self._count(meter, at)
        self.valid[number] = meter, at
        return f'{{"meter": "{meter}", "at": "{at.isoformat()}", "number": {number}}}\n'


class TicketService:
    """The answers of the HTTP server: some attempts fail, some connections are reset, some calls hang."""

    def __init__(self) -> None:
        self.requests: Counter[int] = Counter()
        self.keys: defaultdict[int, set[str]] = defaultdict(set)
        self._over = threading.Event()
        self._lock = threading.Lock()

    def answer(self, posted: Posted) -> Answer:
        """Deterministic by complaint and attempt."""
        number = posted.rows[0]["number"]
        with self._lock:
            self.requests[number] += 1
            self.keys[number].add(posted.key)
        if is_refused(number):
            return 503
        attempt = int(posted.headers["Attempt"])
        if attempt > _TROUBLED_ATTEMPTS:
            return 200
        drawn, (fails, resets, hangs) = _percent(f"{number} {attempt}"), _TROUBLE
        if drawn < fails:
            return 500
        if drawn < resets:
            return RESET
        if drawn < hangs:
            self._over.wait(_HANGS_FOR)
        return 200

    def close(self) -> None:
        """Let go of the calls that hang."""
        self._over.set()


def is_refused(number: int) -> bool:
    """True if a complaint never gets a ticket."""
    return _percent(str(number)) < _REFUSED


def _percent(text: str) -> int:
    return crc32(text.encode()) % 100


@dataclass(frozen=True)
class Helpdesk:
    """The readings generated and the tickets asked for, and the lake in which they must be found."""

    lake: Lake
    readings: TimedReadings
    complaints: Complaints
    service: TicketService

    def correct(self, spark: SparkSession) -> None:
        """Correct every day of the window join that has late rows."""
        runtime = runtime_of(by_window, self.lake)
        days = [pending.day for pending in runtime.plan(spark)]
        if days:
            runtime.correct(spark, days, lambda: datetime.now(UTC))

    def demands(self, spark: SparkSession, ends: int) -> list[Demand]:
        """The demands on join, window join and enrichment after an end of input, where the stream ended so often."""
        return [*self._joined(spark), self._by_window(spark), *self._ticketed(spark, ends)]

    def _joined(self, spark: SparkSession) -> list[Demand]:
        times = {meter: sorted(each) for meter, each in self.readings.times.items()}
        near = Counter(
            {
                number: bisect_right(times[meter], at + _NEAR[1]) - bisect_left(times[meter], at + _NEAR[0])
                for number, (meter, at) in self.complaints.valid.items()
                if meter in times
            }
        )
        expected = +near
        current = runtime_of(near_complaints, self.lake).readable["current"](spark)
        rows = current.select("number", "value").collect()
        pairs = Counter(row["number"] for row in rows if row["value"] is not None)
        alone = sorted(row["number"] for row in rows if row["value"] is None)
        lonely = sorted(number for number in self.complaints.valid if number not in expected)
        return [
            (
                "join: each pair once = an independent count",
                f"{pairs.total():,} and {expected.total():,} pairs of {len(expected):,} complaints",
                pairs == expected,
            ),
            (
                "join: complaints without a reading nearby = the same count",
                f"{len(alone):,} and {len(lonely):,}",
                alone == lonely,
            ),
        ]

    def _by_window(self, spark: SparkSession) -> Demand:
        expected = {
            (*window, complaints * self.readings.windows[window])
            for window, complaints in self.complaints.windows.items()
            if self.readings.windows[window]
        }
        current = runtime_of(by_window, self.lake).readable["current"](spark)
        windows = {
            (row["meter"], int(row["window_start"].timestamp()) // WINDOW_SECONDS, row["count"])
            for row in current.groupBy("meter", "window_start").count().collect()
        }
        pairs = sum(count for *_, count in windows)
        return (
            "window join, corrected = an independent count",
            f"{pairs:,} pairs in {len(windows):,} and {len(expected):,} windows",
            windows == expected,
        )

    def _ticketed(self, spark: SparkSession, ends: int) -> list[Demand]:
        readable = runtime_of(ticketed, self.lake).readable
        answered = readable["current"](spark).select("number", "_attempt").collect()
        failed = readable["failed"](spark).select("number", "attempts").collect()
        outcomes = Counter(row["number"] for row in (*answered, *failed))
        refused = {number for number in self.complaints.valid if is_refused(number)}
        lost = {row["number"] for row in failed} ^ refused
        attempts = {row[0]: row[1] for row in (*answered, *failed)}
        requests = self.service.requests
        extra = Counter({number: count - attempts.get(number, 0) for number, count in requests.items()})
        most = max(extra.values(), default=0)
        keys = max((len(each) for each in self.service.keys.values()), default=0)
        return [
            (
                "enrichment: each complaint once, answered or failed",
                f"{len(answered):,} + {len(failed):,} of {len(self.complaints.valid):,}",
                outcomes == Counter(dict.fromkeys(self.complaints.valid, 1)),
            ),
            (
                "enrichment: only what was refused has failed",
                f"{len(refused):,} refused, {len(lost):,} otherwise",
                not lost,
            ),
            (
                "enrichment: at most one extra call per row and end of the stream, all under one key",
                f"{requests.total():,} calls, {(+extra).total():,} extra, at most {most} a row, {ends} ends",
                most <= ends and keys == 1,
            ),
        ]
