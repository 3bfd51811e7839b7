"""The cost of keeping an SQL view right beside computing it anew: `python -m benchmarks.sql_views`.

One warm process follows batches of rows of random customers. Each batch is in the log before; then the CPU of the
view's step, with what is published of it, is set against that of Spark's own answer to the same query over that log,
written as a Delta table. The CPU is that of the process and all that it has started.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random

from benchmarks.compare.arena import Ratio
from benchmarks.compare.bars import at_most
from benchmarks.compare.contenders import session
from benchmarks.demands import Demand, begin, conclude, console
from benchmarks.processes import cpu_seconds
from streaming import BoundedOutOfOrderness, Files, Json, Lake, Pipeline, Stream, Tumbling, View, Windowed, agg, drain
from streaming.base import utc_now
from streaming.changes import publish
from streaming.log import read_log, valid
from streaming.operators import runtime_of

_FIRST = datetime(2026, 1, 5, tzinfo=UTC)
_QUERY = """
select customer, count(*) as orders, sum(amount) as amount, max(amount) as largest, max(at) as newest
from {of} group by customer
"""


def main() -> None:
    """Measure; exit 1 where a step costs more than its share of computing everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--facts", type=int, default=2_000_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--changes", type=int, default=1_000)
    parser.add_argument("--times", type=int, default=5)
    arguments, folder = begin(parser, "bench")
    conclude(folder / "sql-views.md", [_compared(folder, arguments)])


def _compared(folder: Path, arguments: argparse.Namespace) -> Demand:
    orders = Stream(
        name="orders",
        source=Files(str(folder / "landing")),
        format=Json("customer bigint, at timestamp, amount decimal(12, 2)"),
        event_time="at",
        clock=BoundedOutOfOrderness("1 hour", max_ahead="400 days"),
    )
    view = View("by_customer", _QUERY.format(of="orders"), of=(orders,), key=("customer",))
    by_day = Windowed("by_day", orders, Tumbling("1 day"), {"orders": agg.count()})
    lake, log = Lake(str(folder / "lake")), Pipeline(orders, (by_day,))
    drawn = Random(7)
    ours, theirs = list[float](), list[float]()
    for number in range(arguments.times + 2):
        rows = arguments.facts if number == 0 else arguments.changes
        _land(folder / "landing", number, (drawn.randrange(arguments.keys) for _ in range(rows)), drawn)
        drain(session(), lake, log)
        ours.append(_cpu(partial(_follow, lake, view)))
        theirs.append(_cpu(partial(_compute, lake, orders, str(folder / "computed"))))
    # The first batch has all facts, and the second warms up what the others do.
    for what, seconds in (("step", ours[2:]), ("all", theirs[2:])):
        console.print(f"{what}: {statistics.median(seconds):.2f} s of CPU")
    name = f"CPU of a step vs the whole query, {arguments.facts:,} facts, {arguments.keys:,} keys"
    return at_most(name, Ratio(ours[2:], theirs[2:]), 0.45 if arguments.facts < 20_000_000 else 0.15)


def _land(landing: Path, number: int, customers: Iterable[int], drawn: Random) -> None:
    landing.mkdir(parents=True, exist_ok=True)
    begins = _FIRST + timedelta(days=number)
    with (landing / f"{number:05}.json").open("w") as file:
        for customer in customers:
            at = (begins + timedelta(seconds=drawn.randrange(86_400))).isoformat()
            file.write(json.dumps({"customer": customer, "at": at, "amount": drawn.randrange(10**6) / 100}) + "\n")


def _cpu(work: Callable[[], None]) -> float:
    began = cpu_seconds()
    work()
    return cpu_seconds() - began


def _follow(lake: Lake, view: View) -> None:
    for step in runtime_of(view, lake).steps(session(), utc_now):
        step.run()
    publish(session(), lake, view)


def _compute(lake: Lake, orders: Stream, target: str) -> None:
    valid(read_log(session(), lake, orders)).createOrReplaceTempView("computed_orders")
    rows = session().sql(_QUERY.format(of="computed_orders"))
    rows.write.format("delta").mode("overwrite").save(target)


if __name__ == "__main__":
    main()
