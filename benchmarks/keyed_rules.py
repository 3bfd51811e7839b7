"""The cost of rows that are asked thousands of rules: `python -m benchmarks.keyed_rules FOLDER`.

Rules come from a control stream, each a condition in SQL over a reading. Batches of 10,000 readings follow, and each
reading is asked every rule. What is counted is the CPU of a drain, of this process and all that it has started, and by
how much it passes that of one without a rule; all matches are compared with those that plain Python finds.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.keyed_state import readings
from benchmarks.processes import cpu_seconds
from streaming import (
    BoundedOutOfOrderness,
    ConditionRule,
    Files,
    Json,
    Key,
    Keyed,
    Lake,
    Pinned,
    Pipeline,
    Stream,
    drain,
)
from streaming.operators import runtime_of
from streaming.spark import start_session

RULES = (0, 10, 100, 1_000, 5_000)
ROWS = 10_000
_METERS = 1_000
_WARM, _ROUNDS = 2, 3

limits = Stream(
    "limits",
    Files("landing/limits"),
    Json("rule_id bigint not null, at timestamp not null, condition string not null"),
    "at",
    BoundedOutOfOrderness("0 seconds"),
    rules=(ConditionRule("readable", column="condition", of=readings),),
)


def told(key: Key, row: Any) -> None:
    """A row for each rule that is true of a reading."""
    for rule in key.matching:
        key.emit(rule_id=rule.rule_id, value=row.value)


alerts = Keyed(
    "alerts",
    readings,
    ("id",),
    "",
    "rule_id bigint, value double",
    told,
    rules=Pinned(limits, by=("rule_id",)),
)


class Measured:
    """A lake in which so many rules are in force."""

    def __init__(self, spark: SparkSession, folder: Path, rules: int) -> None:
        self._spark, self._rules = spark, rules
        self._lake = Lake(str(folder / f"{rules}"))
        self._drawn = random.Random(rules)
        self._second = 0
        self._expected = 0
        self._limits = [(number % _METERS, self._drawn.uniform(0.9, 1.0)) for number in range(rules)]
        self._take(
            "limits",
            [
                {"rule_id": number, "condition": f"id = {meter} and value > {limit!r}D"}
                for number, (meter, limit) in enumerate(self._limits)
            ],
        )

    def measure(self) -> tuple[float, int]:
        """The median of steps, and how many matches there were.

        Raises:
            SystemExit: they are not those that plain Python finds.
        """
        costs = [self._step() for _ in range(_WARM + _ROUNDS)][_WARM:]
        matches = runtime_of(alerts, self._lake).readable["current"](self._spark).count()
        if matches != self._expected:
            sys.exit(f"{matches} matches, and plain Python finds {self._expected}")
        return statistics.median(costs), matches

    def _step(self) -> float:
        drawn = [(self._drawn.randrange(_METERS), self._drawn.random()) for _ in range(ROWS)]
        limits: dict[int, list[float]] = {}
        for meter, limit in self._limits:
            limits.setdefault(meter, []).append(limit)
        self._expected += sum(value > limit for meter, value in drawn for limit in limits.get(meter, ()))
        rows = [{"id": meter, "value": value} for meter, value in drawn]
        before = cpu_seconds()
        self._take("readings", rows)
        return cpu_seconds() - before

    def _take(self, name: str, rows: list[dict[str, Any]]) -> None:
        self._second += 1
        at = f"2026-01-01T{self._second // 3600:02}:{self._second // 60 % 60:02}:{self._second % 60:02}Z"
        folder = Path(self._lake.root, "landing", name)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self._second:06}.json").write_text("\n".join(json.dumps({**row, "at": at}) for row in rows))
        Path(self._lake.root, "landing", "readings").mkdir(parents=True, exist_ok=True)
        drain(self._spark, self._lake, Pipeline(name="rules", streams=(limits, readings), operators=(alerts,)))


def main(folder: Path) -> None:
    """Measure each number of rules and print a Markdown row of it."""
    spark = start_session()
    print(f"| rules | matches | drain of {ROWS:,} rows, CPU s | more than without, µs a row | ns a row and rule |")
    print("|---|---|---|---|---|")
    # The first drains of a session cost more.
    Measured(spark, folder / "warm", RULES[0]).measure()
    without = 0.0
    for rules in RULES:
        cost, matches = Measured(spark, folder, rules).measure()
        without = without or cost
        more = (cost - without) / ROWS * 1e6
        each = f"{1e3 * more / rules:,.0f}" if rules else "-"
        print(f"| {rules:,} | {matches:,} | {cost:.2f} | {more:,.0f} | {each} |", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
