"""Rows that changed ones are joined with by equal columns: no others are read of their relation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import product
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession

from streaming import BoundedOutOfOrderness, Files, Json, Lake, Pipeline, Stream, View
from streaming.audit.laws import audit
from streaming.declare import CURRENT
from streaming.sqlviews import partners, steps
from streaming.sqlviews.relations import StreamRelation
from streaming.tables import delta
from tests.support.instants import T0
from tests.support.runs import run
from tidemark.testing import land_all

CLOCK = BoundedOutOfOrderness("10 seconds", max_ahead="30 days")
SALES = Stream(
    name="sales",
    source=Files("landing/sales"),
    format=Json("code bigint, client bigint, amount bigint, at timestamp"),
    event_time="at",
    clock=CLOCK,
)
PRODUCTS, CLIENTS = (
    Stream(
        name=name,
        source=Files(f"landing/{name}"),
        format=Json(f"id bigint, version bigint, at timestamp, {columns}"),
        event_time="at",
        clock=CLOCK,
        key=("id",),
        sequence="version",
    )
    for name, columns in (("products", "code bigint, weight bigint"), ("clients", "segment string"))
)
STREAMS = (SALES, PRODUCTS, CLIENTS)
INNER, LEFT = (
    View(
        name,
        "select s.code, c.segment, count(*) as sales, sum(s.amount * p.weight) as weighed"
        f" from sales s {join} products p on s.code = p.code {join} clients c on s.client = c.id"
        " group by s.code, c.segment",
        of=STREAMS,
        key=("code", "segment"),
    )
    for name, join in (("weighed", "join"), ("maybe_weighed", "left join"))
)
PIPELINE = Pipeline(name="partners", streams=STREAMS, operators=(INNER, LEFT))


class Sale(NamedTuple):
    code: int | None
    client: int | None
    amount: int
    at: datetime = T0


class Step(NamedTuple):
    sales: Sequence[Sale] = ()
    products: Mapping[int, tuple[int | None, int]] = {}
    """The code and the weight of each that changes."""
    clients: Mapping[int, str | None] = {}
    """The segment of each that changes."""


STEPS = [
    Step(
        [*(Sale(code, code, 1) for code in (100, 101, None)), Sale(1, 1, 5), Sale(2, 1, 7), Sale(2, 2, 9)],
        {1: (1, 2), 2: (2, 3), 3: (100, 1)},
        {1: "a", 2: "b", 100: "c"},
    ),
    Step(products={1: (1, 20)}),
    Step(products={1: (2, 20), 2: (None, 3)}),
    Step(products={4: (1, 4)}, clients={1: "b"}),
    Step([Sale(1, 2, 11), Sale(3, None, 13)], {1: (3, 6)}),
    Step(products={1: (77, 6)}),
    Step([Sale(77, 1, 1)], {4: (77, 1)}, {1: None}),
]


def lands(lake: Lake, step: Step, version: int) -> None:
    told = {"version": version, "at": T0.isoformat()}
    values: dict[Stream, list[dict[str, Any]]] = {
        SALES: [{**sale._asdict(), "at": sale.at.isoformat()} for sale in step.sales],
        PRODUCTS: [{**told, "id": id_, "code": row[0], "weight": row[1]} for id_, row in step.products.items()],
        CLIENTS: [{**told, "id": id_, "segment": segment} for id_, segment in step.clients.items()],
    }
    for stream, rows in values.items():
        if rows:
            land_all(lake, stream, rows)


def wanted(
    sales: Sequence[Sale], products: Mapping[int, tuple[int | None, int]], clients: Mapping[int, str | None]
) -> dict[View, set[tuple[Any, ...]]]:
    """The rows of both views, by plain Python."""
    rows = dict[View, set[tuple[Any, ...]]]()
    for view, alone in ((INNER, []), (LEFT, [None])):
        met = dict[tuple[int | None, str | None], list[int | None]]()
        for sale in sales:
            weights = [weight for code, weight in products.values() if code is not None and code == sale.code]
            segments = [segment for id_, segment in clients.items() if id_ == sale.client]
            for weight, segment in product(weights or alone, segments or alone):
                met.setdefault((sale.code, segment), []).append(None if weight is None else sale.amount * weight)
        sums = {key: [each for each in weighed if each is not None] for key, weighed in met.items()}
        rows[view] = {(*key, len(met[key]), sum(of_key) if of_key else None) for key, of_key in sums.items()}
    return rows


@pytest.mark.parametrize("most", [steps.MOST_IN_MEMORY, pytest.param(1, marks=pytest.mark.long)])
def test_of_rows_that_changed_ones_join_spark_reads_no_others(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """
    step 0   sales of codes 1, 2, 100 and 101, and of none, with products and clients
    step 1   the product of code 1 weighs more
    step 2   it takes code 2, and the product that had this has none any more
    step 3   another product has code 1 now, and a client is in another segment
    step 4   sales come in the step in which a product changes its code
    step 5   that takes a code that nobody has sold
    step 6   a sale, its product and its client change together; the client has no segment any more
    """
    for module in (steps, partners):
        monkeypatch.setattr(module, "MOST_IN_MEMORY", most)
    now, read = StreamRelation.now, list[str]()

    def told(relation: StreamRelation, of: SparkSession, through: int) -> DataFrame:
        read.append(relation.name)
        return now(relation, of, through)

    monkeypatch.setattr(StreamRelation, "now", told)
    sales, products, clients = list[Sale](), dict[int, tuple[int | None, int]](), dict[int, str | None]()
    for version, step in enumerate(STEPS):
        lands(lake, step, version)
        sales, products, clients = [*sales, *step.sales], {**products, **step.products}, {**clients, **step.clients}
        read.clear()
        run(spark, lake, PIPELINE)
        # Of more rows than may be in memory nobody looks for those that meet.
        assert ("sales" in read) == (most == 1 or version == 0), version
        for view, rows in wanted(sales, products, clients).items():
            current = delta.read(spark, lake.table(view, CURRENT)).select(*view.columns).collect()
            assert Counter(map(tuple, current)) == Counter(rows), (view.name, version)
    monkeypatch.undo()
    assert [finding for finding in audit(spark, lake, PIPELINE) if not finding.holds] == []
