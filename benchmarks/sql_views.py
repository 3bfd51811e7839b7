"""The cost of keeping SQL views right beside computing them anew: `python -m benchmarks.sql_views`.

One warm process follows batches of rows. Each batch is in the log before; then the CPU of the view's step, with what is
published of it, is set against that of Spark's own answer to the same query over what stands, written as a Delta
table, in turn. The CPU is that of the process and all that it has started.

`groups` has one row a customer, of whom few change; `many` lets more and more of them change, and computes only these
and then all; `joined` joins sales with their products and customers, and changes a product; `live` is the wait, in
seconds, from the commit of a row to a row of the view that can be read, at 2,000 rows a second.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from itertools import count
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.compare.arena import Ratio
from benchmarks.compare.bars import at_most
from benchmarks.compare.contenders import session
from benchmarks.compare.live_operators import views
from benchmarks.demands import Demand, begin, conclude, console
from benchmarks.warm_steps import cost_of, follow, land_day
from streaming import BoundedOutOfOrderness, Files, Json, Lake, Pipeline, Stream, Tumbling, View, Windowed, agg, drain
from streaming.log import read_log, valid
from streaming.operators import OperatorRuntime, runtime_of
from streaming.revisions import standing_rows
from streaming.sqlviews import steps
from streaming.tables import delta

_Row = dict[str, Any]
_LANDED = 500_000
"""Facts that come as JSON; the others are these again, as rows of other keys."""
_PRODUCTS, _SEGMENTS = 100, 20
_WARM = 3
"""Steps that do not count, as each takes less than the one before until Java has compiled what they run."""


def main() -> None:
    """Measure; exit 1 where a step costs more than its share of computing everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--facts", type=int, default=2_000_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--changes", type=int, default=1_000)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--shares", type=float, nargs="+", default=(0.02, 0.05, 0.1, 0.25, 0.5), help="of keys")
    parser.add_argument("--only", nargs="+", choices=("groups", "many", "joined", "live"))
    arguments, folder = begin(parser, "bench")
    measures = {"groups": _groups, "many": _many, "joined": _joined, "live": _live}
    demands = [demand for name in arguments.only or measures for demand in measures[name](folder, arguments)]
    conclude(folder / "sql-views.md", demands)


@dataclass(frozen=True)
class _Sides:
    """A view in a lake below `folder`, and beside it a table of what Spark computes of the same query."""

    folder: Path
    view: View
    drawn: Random = field(default_factory=partial(Random, 7))

    @cached_property
    def lake(self) -> Lake:
        return Lake(str(self.folder / "lake"))

    @cached_property
    def runtime(self) -> OperatorRuntime:
        return runtime_of(self.view, self.lake)

    def begin(self, facts: Stream, number: int, column: str, values: int, row: Callable[[int], _Row]) -> None:
        """Let the log have a `number` of facts, whose `column` is one of so many `values`; `row` makes one of each."""
        landed = min(number, _LANDED)
        self.land(facts, (row(self.drawn.randrange(values)) for _ in range(landed)))
        self.ingest()
        if number > landed:
            rows = delta.read(session(), self.lake.log(facts)).crossJoin(session().range(1, number // landed))
            other = (F.col(column) * (2 * F.col("id") + 1) + 977 * F.col("id")) % values
            delta.append(rows.withColumn(column, other).drop("id"), self.lake.log(facts), statistics=("at", "_batch"))
        console.print(f"all facts: {self.step():.1f} s of CPU, and {self.anew():.1f} s for all anew")

    def land(self, stream: Stream, rows: Iterable[_Row]) -> None:
        """Land a file of rows, of a day of their own."""
        landing = Path(stream.source.location(self.lake))
        landing.mkdir(parents=True, exist_ok=True)
        land_day(landing, len([*landing.iterdir()]), rows, self.drawn)

    def ingest(self) -> None:
        first = self.view.follows[0]
        counts = Windowed("by_day", first, Tumbling("1 day"), {"rows": agg.count()})
        drain(session(), self.lake, Pipeline(name="logs", streams=self.view.follows, operators=(counts,)))

    def step(self) -> float:
        """CPU seconds of a step, with what is published of it."""
        return cost_of(partial(follow, self.lake, self.runtime), self.folder / "lake").cpu

    def anew(self) -> float:
        """CPU seconds of Spark's own answer."""
        return cost_of(self._compute, self.folder / "computed").cpu

    def _compute(self) -> None:
        for stream in self.view.follows:
            self._rows(stream).createOrReplaceTempView(f"computed_{stream.name}")
        text = self.view.query.text(lambda name: f"computed_{name}")
        session().sql(text).write.format("delta").mode("overwrite").save(str(self.folder / "computed"))

    def _rows(self, stream: Stream) -> DataFrame:
        if stream.revised:
            return standing_rows(session(), self.lake, stream)
        return valid(read_log(session(), self.lake, stream))

    def ratio(self, what: str, times: int, stream: Stream, rows: Callable[[], Iterable[_Row]]) -> Ratio:
        """Ours over Spark's, of so many steps, each of a batch of `rows`."""
        ours, theirs = list[float](), list[float]()
        for _ in range(_WARM + times):
            self.land(stream, rows())
            self.ingest()
            ours.append(self.step())
            theirs.append(self.anew())
            console.print(f"  {what}: {ours[-1]:.2f} s of CPU, {theirs[-1]:.2f} s for all anew", highlight=False)
        ours, theirs = ours[_WARM:], theirs[_WARM:]
        console.print(f"{what}: {statistics.median(ours):.2f} s of CPU, {statistics.median(theirs):.2f} s for all anew")
        return Ratio(ours, theirs)


def _groups(folder: Path, arguments: argparse.Namespace) -> list[Demand]:
    """One row a customer; random customers change."""
    sides, orders = _by_customer(folder / "by_customer", arguments.facts, arguments.keys)
    rows = partial(_orders, sides.drawn, arguments.keys, arguments.changes)
    ratio = sides.ratio("groups", arguments.times, orders, rows)
    bar = 0.15 if arguments.facts >= 20_000_000 else 0.45
    return [at_most(f"{arguments.changes:,} rows of {arguments.keys:,} keys, {arguments.facts:,} facts", ratio, bar)]


def _many(folder: Path, arguments: argparse.Namespace) -> list[Demand]:
    """One row a customer; more and more customers change, and either these are computed or all of them."""
    sides, orders = _by_customer(folder / "by_customer", arguments.facts, arguments.keys)
    demands = list[Demand]()
    for share in arguments.shares:
        changes, ways, theirs = int(share * arguments.keys), dict[str, list[float]](), list[float]()
        for _ in range(arguments.times):
            for way, most in (("these alone", 1.0), ("all", 0.0)):
                sides.land(orders, _orders(sides.drawn, arguments.keys, changes))
                sides.ingest()
                with patch.multiple(steps, MOST_TOUCHED=most, FEW=0):
                    ways.setdefault(way, []).append(sides.step())
            theirs.append(sides.anew())
        ratios = {way: Ratio(ours, theirs) for way, ours in ways.items()}
        chosen = ratios["these alone" if share <= steps.MOST_TOUCHED else "all"]
        told = ", ".join(f"{way} computed {ratio}" for way, ratio in ratios.items())
        what = f"{share:.0%} of {arguments.keys:,} keys touched, {arguments.facts:,} facts"
        console.print(f"{what}: {told}", highlight=False)
        demands.append(at_most(f"{what} ({told})", chosen, 1.15))
    return demands


@cache
def _by_customer(folder: Path, facts: int, keys: int) -> tuple[_Sides, Stream]:
    orders = _stream(folder, "orders", "customer bigint, at timestamp, amount decimal(12, 2)")
    text = """
    select customer, count(*) as orders, sum(amount) as amount, max(amount) as largest, max(at) as newest
    from orders group by customer
    """
    sides = _Sides(folder, View("by_customer", text, of=(orders,), key=("customer",)))
    sides.begin(orders, facts, "customer", keys, partial(_order, sides.drawn))
    return sides, orders


def _order(drawn: Random, customer: int) -> _Row:
    return {"customer": customer, "amount": drawn.randrange(10**6) / 100}


def _orders(drawn: Random, keys: int, number: int) -> Iterable[_Row]:
    """A number of orders, each of another customer."""
    return [_order(drawn, customer) for customer in drawn.sample(range(keys), number)]


def _joined(folder: Path, arguments: argparse.Namespace) -> list[Demand]:
    """Sales by product and segment of the customer; a product changes, of which a hundredth of the sales are."""
    folder = folder / "joined"
    sales = _stream(folder, "sales", "product bigint, customer bigint, at timestamp, amount decimal(12, 2)")
    products = _keyed(folder, "products", "weight decimal(6, 2)")
    customers = _keyed(folder, "customers", "segment string")
    text = """
    select p.id as product, c.segment, count(*) as sales, sum(s.amount) as amount, sum(s.amount * p.weight) as weighed
    from sales s join products p on s.product = p.id join customers c on s.customer = c.id
    group by p.id, c.segment
    """
    sides = _Sides(folder, View("by_segment", text, of=(sales, products, customers), key=("product", "segment")))
    drawn = sides.drawn
    every = range(arguments.keys)
    sides.land(customers, ({"id": id_, "version": 1, "segment": f"s{id_ % _SEGMENTS}"} for id_ in every))
    sides.land(products, ({"id": id_, "version": 1, "weight": 1} for id_ in range(_PRODUCTS)))
    versions = count(2)

    def sale(customer: int) -> _Row:
        return {"product": drawn.randrange(_PRODUCTS), **_order(drawn, customer)}

    def change() -> Iterable[_Row]:
        return [{"id": drawn.randrange(_PRODUCTS), "version": next(versions), "weight": drawn.randrange(1, 99)}]

    sides.begin(sales, arguments.facts, "customer", arguments.keys, sale)
    ratio = sides.ratio("joined", arguments.times, products, change)
    return [at_most(f"a product with a hundredth of the sales, {arguments.facts:,} facts", ratio, 0.3)]


def _live(folder: Path, _: argparse.Namespace) -> list[Demand]:
    """The wait from the commit of a row to the row of the view."""
    return views(folder / "live")


def _stream(folder: Path, name: str, columns: str) -> Stream:
    return Stream(
        name=name,
        source=Files(str(folder / name)),
        format=Json(columns),
        event_time="at",
        clock=BoundedOutOfOrderness("1 hour", max_ahead="400 days"),
    )


def _keyed(folder: Path, name: str, columns: str) -> Stream:
    """A stream of rows with an `id` and a `version`, the newest of which stands."""
    stream = _stream(folder, name, f"id bigint, version bigint, at timestamp, {columns}")
    return replace(stream, key=("id",), sequence="version")


if __name__ == "__main__":
    main()
