"""Diamonds: a view that reads a stream and, by another way, what others have made of it, sees one moment of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import BoundedOutOfOrderness, Files, Json, Lake, Pipeline, Stream, Tumbling, View, Windowed, agg
from streaming.audit.laws import audit
from streaming.base import NoVersionError
from streaming.changes import Publishing
from streaming.operations.cuts import recomputed
from streaming.operators.runtime import frame, runtime_of
from streaming.service.run import Run
from streaming.sqlviews.cuts import Cut, Cuts, Revision, agreed
from tests.support.instants import NOW, at
from tests.support.publishing import unpublish
from tests.support.runs import run
from tests.support.seeds import draws
from tidemark.testing import land_all


@dataclass
class Model:
    """A view in plain Python: its row is the batches of each stream that it is made of, by each way to them."""

    streams: tuple[str, ...] = ()
    views: tuple[str, ...] = ()
    through: dict[str, int] = field(default_factory=dict)
    followed: dict[str, int] = field(default_factory=dict)
    row: frozenset[tuple[str, int]] = frozenset()
    steps: list[tuple[dict[str, int], frozenset[tuple[str, int]]]] = field(default_factory=list)
    published: list[Revision] = field(default_factory=list)

    def publish(self) -> None:
        """Tell the newest step, at a revision of its own only where the row is another one."""
        if self.steps:
            cut, row = self.steps[-1]
            before = self.published[0].number if self.published else -1
            self.published.insert(0, Revision(before + (before < 0 or row != self.rows[before]), cut))
            self.rows[self.published[0].number] = row

    @property
    def rows(self) -> dict[int, frozenset[tuple[str, int]]]:
        return self.__dict__.setdefault("_rows", {})

    def step(self, heads: Mapping[str, int], models: Mapping[str, Model]) -> None:
        options = {name: models[name].published[:4] for name in self.views}
        cut = agreed(options, self.through, self.followed)
        if cut is None or not all(options.values()):
            return
        assert all(number >= self.followed.get(name, -1) for name, number in cut.revisions.items())
        self.followed = {**cut.revisions}
        self.through |= {name: cut.through.get(name, heads[name]) for name in self.streams}
        rows = [models[name].rows[number] for name, number in cut.revisions.items()]
        # Some batches change nothing for whoever reads a stream.
        own = frozenset((name, batch - batch % 3) for name, batch in self.through.items())
        self.row = own.union(*rows)
        self.steps.append(({**cut.through, **self.through}, self.row))


@pytest.mark.parametrize("seed", range(60))
def test_whatever_the_order_of_steps_a_view_is_of_one_cut_and_comes_to_the_newest(seed: int) -> None:
    chance = draws(f"cuts of SQL views {seed}")
    heads = {"s": 0, "t": 0}
    models = {
        "a": Model(("s",)),
        "b": Model(("s", "t")),
        "c": Model(("t",), ("a",)),
        "d": Model(("s", "t"), ("a", "c")),
        "e": Model((), ("a", "b")),
        "f": Model(("t",), ("c", "e")),
    }

    def check(model: Model) -> None:
        cut, row = model.steps[-1]
        assert row == {(name, batch - batch % 3) for name, batch in cut.items()}, (seed, cut, row)

    for _ in range(200):
        name = chance.choice([*heads, *models, *models])
        if name in heads:
            heads[name] += chance.randint(1, 2)
            continue
        model, before = models[name], len(models[name].steps)
        if chance.random() < 0.5:
            model.step(heads, models)
        elif chance.random() < 0.7:
            model.publish()
        if len(model.steps) > before:
            check(model)
    # One pass upstream to downstream, as a drain makes it.
    for model in models.values():
        model.step(heads, models)
        model.publish()
        assert model.steps[-1][0] == {name: heads[name] for name in model.steps[-1][0]}
        check(model)


def test_revisions_that_do_not_go_together_are_passed_over_for_older_ones_that_do() -> None:
    one = [Revision(5, {"s": 9}), Revision(4, {"s": 7}), Revision(3, {"s": 3})]
    other = [Revision(8, {"s": 8, "t": 1}), Revision(7, {"s": 7, "t": 1}), Revision(6, {"s": 3, "t": 0})]
    assert agreed({"one": one, "other": other}, {"s": 3}, {}) == Cut({"one": 4, "other": 7}, {"s": 7, "t": 1})
    assert agreed({"one": one[:1], "other": other}, {}, {}) is None
    # Nothing goes back behind what was followed.
    assert agreed({"one": one, "other": other}, {"s": 8}, {}) is None
    assert agreed({"one": one, "other": other}, {}, {"one": 5}) is None
    assert agreed({}, {"s": 8}, {}) == Cut({}, {})


ORDERS = Stream(
    name="orders",
    source=Files("landing/orders"),
    format=Json("id bigint, at timestamp, country string, amount bigint"),
    event_time="at",
    clock=BoundedOutOfOrderness("10 seconds"),
)
OF_ALL = View("of_all", "select country, sum(amount) as total from orders group by country", (ORDERS,), ("country",))
SHARES = View(
    "shares",
    "select o.id, o.amount, a.total from orders o join of_all a on a.country = o.country",
    of=(ORDERS, OF_ALL),
    key=("id",),
)
BY_HOUR = Windowed("by_hour", ORDERS, Tumbling("1 hour"), {"orders": agg.count()}, by=("country",))
BESIDE = View(
    "beside",
    "select o.id, h.orders from orders o left join by_hour h on h.country = o.country",
    of=(ORDERS, BY_HOUR),
    key=("id",),
)
LARGEST = View("largest", "select max(total) as total from of_all", (OF_ALL,))
PIPELINE = Pipeline(ORDERS, (SHARES, OF_ALL, BY_HOUR, BESIDE, LARGEST))


def order(id: int, amount: int) -> dict[str, Any]:
    return {"id": id, "at": at(id).isoformat(), "country": "DE", "amount": amount}


def rows(spark: SparkSession, lake: Lake, view: View) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame(spark, lake, view).select(*view.columns).collect())


def test_a_view_waits_for_another_whose_tables_are_there_and_whose_first_rows_are_not(
    spark: SparkSession, lake: Lake
) -> None:
    pipeline = Pipeline(ORDERS, (OF_ALL,))
    run(spark, lake, pipeline, [order(1, 10)])
    unpublish(lake, OF_ALL)
    assert Cuts(lake, SHARES).newest({}, {}) is None
    Publishing(lake, OF_ALL).publish(spark)
    assert Cuts(lake, SHARES).newest({}, {}) == Cut({"of_all": 0}, {"orders": 0})


def test_a_view_takes_a_stream_no_further_than_the_view_that_it_reads_beside_it(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    hours_later = 8000
    run(spark, lake, PIPELINE, [order(1, 10), order(hours_later, 0)])
    first = [(1, 10, 10), (hours_later, 0, 10)]
    assert rows(spark, lake, SHARES) == first
    # Batch 1 is in the log, and nothing has followed it yet.
    with monkeypatch.context() as patch:
        patch.setattr(Run, "step_all", lambda running: None)
        patch.setattr(Run, "publish_all", lambda running: None)
        run(spark, lake, PIPELINE, [order(2, 5)])

    def step(view: View) -> bool:
        """Let a view step as in a running pipeline; tells if there was a step."""
        steps = [step.run() for step in runtime_of(view, lake).steps(spark, lambda: NOW)]
        return bool(steps)

    assert not step(SHARES) and rows(spark, lake, SHARES) == first
    # What waits for a clock is behind by nature, and holds nothing up.
    assert step(BESIDE) and rows(spark, lake, BESIDE) == [(1, 1), (2, 1), (hours_later, 1)]
    assert step(OF_ALL)
    assert not step(SHARES) and rows(spark, lake, SHARES) == first
    Publishing(lake, OF_ALL).publish(spark)
    assert step(SHARES) and rows(spark, lake, SHARES) == [(1, 10, 15), (2, 5, 15), (hours_later, 0, 15)]
    land_all(lake, ORDERS, [order(3, 1)])
    run(spark, lake, PIPELINE)
    assert rows(spark, lake, SHARES) == [(1, 10, 16), (2, 5, 16), (3, 1, 16), (hours_later, 0, 16)]
    assert [finding for finding in audit(spark, lake, PIPELINE) if not finding.holds] == []

    # A view that reads others has a version as of the batches that these were through.
    older = lake.as_of({"orders": 0})
    assert rows(spark, older, SHARES) == first and rows(spark, older, LARGEST) == [(10,)]
    current = Pipeline(ORDERS, (SHARES, OF_ALL, LARGEST))
    findings = {finding.subject: finding for finding in audit(spark, older, current)}
    assert all(finding.holds for finding in findings.values()) and findings["shares"].checked == 2
    with pytest.raises(
        NoVersionError, match=r"no version as of a batch: it reads .*'by_hour', which also changes when"
    ):
        rows(spark, older, BESIDE)
    # Steps of it went past batch 1 of the stream, and of what it read then only the newest is known.
    with (
        pytest.raises(NoVersionError, match="of of_all, which it reads besides its logs, only what is there now"),
        recomputed(spark, lake.as_of({"orders": 1}), (LARGEST,)),
    ):
        pass
