"""Cases of retraction and upsert that Flink and Materialize document: what comes of them here, and where not so.

All cases run as one stream, each under a key of its own, so that each costs no run. A round of a case is a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from streaming import BoundedOutOfOrderness, Files, Json, Lake, Pipeline, Stream, Tumbling, Windowed, agg
from streaming.audit.laws import audit
from streaming.log import read_log
from streaming.revisions.steps import rows_now
from tests.support.instants import at
from tests.support.runs import read_current, run

REVISIONS = Stream(
    name="revisions",
    source=Files("landing/revisions", files_per_batch=1),
    format=Json("of string, id string, version bigint, at timestamp, name string, value decimal(10, 3)"),
    event_time="at",
    clock=BoundedOutOfOrderness("10 seconds", max_ahead="30 days"),
    key=("of", "id"),
    sequence="version",
    # A record of which nothing came but the key is the null payload of a log that is compacted.
    deletes="name is null",
)
GROUPS = Windowed(
    "groups",
    REVISIONS,
    Tumbling("1 day"),
    {
        "rows": agg.count(),
        "total": agg.sum("value"),
        "greatest": agg.maximum("value"),
        "least": agg.minimum("value"),
        "values": agg.count_distinct("value"),
    },
    by=("of", "name"),
)
PIPELINE = Pipeline(REVISIONS, (GROUPS,))

Rows = list[tuple[Any, ...]]
"""Values of the columns that are named where the rows are read."""
Row = tuple[str | None, str | None, str | None]
"""Key, name (null for a delete) and value."""
Group = tuple[int, str | None, str | None, str | None, int]
"""Rows, total, greatest and least value, and how many values there are."""


def group(rows: int, total: str | None, greatest: str | None = None, least: str | None = None, n: int = 1) -> Group:
    return rows, total, greatest or total, least or greatest or total, n


@dataclass(frozen=True)
class Case:
    """The rounds of revisions, in the order in which they come unless `versions` says of each of them another one.

    `stands`: the rows at the end. `groups`: those of the view by name. `changes`: the signed rows of each round.
    `differs`: why the other engine gives something else, which is told in words.
    """

    rounds: Sequence[Sequence[Row]]
    stands: Sequence[Row] = ()
    groups: dict[str, Group] | None = None
    changes: Sequence[Sequence[tuple[int, str, str, str | None]]] | None = None
    versions: Sequence[int] | None = None
    rejected: int = 0
    differs: str = ""


PRODUCTS = (
    *(("101", "scooter", "3.14"), ("102", "car battery", "8.1"), ("103", "12-pack drill bits", "0.8")),
    *(("104", "hammer", "0.75"), ("105", "hammer", "0.875"), ("106", "hammer", "1.0")),
    *(("107", "rocks", "5.3"), ("108", "jacket", "0.1"), ("109", "spare tire", "22.2")),
)
"""The rows with which the inventory database of Debezium begins, as Flink's tests of change logs have them."""
PRODUCT_CHANGES = (
    *((("106", "hammer", "1.0"),), (("107", "rocks", "5.1"),)),
    *((("110", "jacket", "0.2"),), (("111", "scooter", "5.18"),), (("110", "jacket", "0.5"),)),
    *((("111", "scooter", "5.17"),), (("111", None, None),)),
)

CASES = {
    "Flink, upsert-kafka connector: a value of a key that is there is an update of it": Case(
        [[("k", "a", "1")], [("k", "a", "2")]],
        [("k", "a", "2")],
        {"a": group(1, "2")},
        [[(1, "k", "a", "1")], [(-1, "k", "a", "1"), (1, "k", "a", "2")]],
    ),
    "Flink, upsert-kafka connector: a null value is a delete of the key": Case(
        [[("k", "a", "1"), ("l", "a", "4")], [("k", None, None)]],
        [("l", "a", "4")],
        {"a": group(1, "4")},
        [[(1, "k", "a", "1"), (1, "l", "a", "4")], [(-1, "k", "a", "1")]],
    ),
    "Flink, ProcTimeMiniBatchDeduplicate and ChangelogNormalize: a delete of an unknown key is nothing": Case(
        [[("k", None, None)], [("l", "a", "1")]],
        [("l", "a", "1")],
        {"a": group(1, "1")},
        [[], [(1, "l", "a", "1")]],
    ),
    "Flink, ChangelogNormalize: an insert after a delete is an insert": Case(
        [[("k", "a", "1")], [("k", None, None)], [("k", "b", "2")]],
        [("k", "b", "2")],
        {"b": group(1, "2")},
        [[(1, "k", "a", "1")], [(-1, "k", "a", "1")], [(1, "k", "b", "2")]],
    ),
    "Flink, ChangelogNormalize: an update to the values that stand is left out": Case(
        [[("k", "a", "1")], [("k", "a", "1")]],
        [("k", "a", "1")],
        {"a": group(1, "1")},
        [[(1, "k", "a", "1")], [(-1, "k", "a", "1"), (1, "k", "a", "1")]],
        differs="a newer revision is another row, with its own place in the log, so that both are told; the sums agree",
    ),
    "Flink, KafkaChangelogTableITCase testKafkaDebeziumChangelogSource: sums of weights by name": Case(
        [PRODUCTS, *PRODUCT_CHANGES],
        [
            *(row for row in PRODUCTS if row[0] not in ("106", "107")),
            *(("106", "hammer", "1.0"), ("107", "rocks", "5.1"), ("110", "jacket", "0.5")),
        ],
        {
            "scooter": group(1, "3.140"),
            "car battery": group(1, "8.100"),
            "12-pack drill bits": group(1, "0.800"),
            "hammer": group(3, "2.625", "1.0", "0.75", 3),
            "rocks": group(1, "5.100"),
            "jacket": group(2, "0.600", "0.5", "0.1", 2),
            "spare tire": group(1, "22.200"),
        },
    ),
    "Flink, DebeziumJsonDeserializationSchema: insert, updates and delete of a row leave nothing": Case(
        [[], [("111", "scooter", "5.18")], [("111", "scooter", "5.17")], [("111", None, None)]],
        [],
        {},
        [
            [],
            [(1, "111", "scooter", "5.18")],
            [(-1, "111", "scooter", "5.18"), (1, "111", "scooter", "5.17")],
            [(-1, "111", "scooter", "5.17")],
        ],
    ),
    "Flink, table.exec.source.cdc-events-duplicate: events that a connector sends again are passed over": Case(
        [[("k", "a", "1")], [("k", "a", "2")], [("k", "a", "1")], [("k", "a", "2")]],
        [("k", "a", "2")],
        {"a": group(1, "2")},
        [[(1, "k", "a", "1")], [(-1, "k", "a", "1"), (1, "k", "a", "2")], [], []],
        versions=[1, 2, 1, 2],
    ),
    "Flink, MaxWithRetractAggFunction: of a greatest value that is taken back the next one is the greatest": Case(
        [[("k", "a", "1"), ("l", "a", "3"), ("m", "a", "2")], [("l", None, None)]],
        [("k", "a", "1"), ("m", "a", "2")],
        {"a": group(2, "3", "2", "1", 2)},
    ),
    "Flink, MinWithRetractAggFunction: a least value that two rows have stays while one of them does": Case(
        [[("k", "a", "1"), ("l", "a", "1"), ("m", "a", "5")], [("k", None, None)]],
        [("l", "a", "1"), ("m", "a", "5")],
        {"a": group(2, "6", "5", "1", 2)},
    ),
    "Flink, GroupAggFunction: a group of which every row is taken back is deleted": Case(
        [[("k", "a", "1"), ("l", "b", "1")], [("k", None, None)]],
        [("l", "b", "1")],
        {"b": group(1, "1")},
    ),
    "Flink, GroupAggFunction: an update that moves a row leaves its old group and is in the new one": Case(
        [[("k", "a", "1"), ("l", "a", "2")], [("k", "b", "1")]],
        [("k", "b", "1"), ("l", "a", "2")],
        {"a": group(1, "2"), "b": group(1, "1")},
        [[(1, "k", "a", "1"), (1, "l", "a", "2")], [(-1, "k", "a", "1"), (1, "k", "b", "1")]],
    ),
    "Flink, count distinct with retraction: a value counts while any row has it": Case(
        [[("k", "a", "1"), ("l", "a", "1"), ("m", "a", "2")], [("k", None, None)], [("m", None, None)]],
        [("l", "a", "1")],
        {"a": group(1, "1", n=1)},
    ),
    "Flink, SumWithRetractAggFunction: the sum of rows without a value is null, not 0": Case(
        [[("k", "a", "1"), ("l", "a", None)], [("k", None, None)]],
        [("l", "a", None)],
        {"a": (1, None, None, None, 0)},
    ),
    "Flink, RowTimeDeduplicateFunction, keep last: an older row that comes later changes nothing": Case(
        [[("k", "a", "2")], [("k", "a", "1")]],
        [("k", "a", "2")],
        {"a": group(1, "2")},
        [[(1, "k", "a", "2")], []],
        versions=[2, 1],
    ),
    "Flink, RowTimeDeduplicateFunction, keep last: of two rows of one time the later one replaces the first": Case(
        [[("k", "a", "1")], [("k", "a", "2")]],
        [("k", "a", "1")],
        {"a": group(1, "1")},
        [[(1, "k", "a", "1")], []],
        versions=[1, 1],
        differs="what has the sequence of the row that stands changes nothing, so that a source may repeat itself",
    ),
    "Materialize, CREATE SOURCE, ENVELOPE UPSERT: insert, overwrite, and delete by a null value": Case(
        [[("fish", "f", "1"), ("bird", "b", "1")], [("fish", "f", "2")], [("bird", None, None)]],
        [("fish", "f", "2")],
        {"f": group(1, "2")},
        [
            [(1, "fish", "f", "1"), (1, "bird", "b", "1")],
            [(-1, "fish", "f", "1"), (1, "fish", "f", "2")],
            [(-1, "bird", "b", "1")],
        ],
    ),
    "Materialize, ENVELOPE UPSERT: of several records of a key at one time only the last is seen": Case(
        [[("k", "a", "1"), ("k", "a", "2"), ("k", None, None), ("k", "b", "3")]],
        [("k", "b", "3")],
        {"b": group(1, "3")},
        [[(1, "k", "b", "3")]],
    ),
    "Materialize, ENVELOPE UPSERT: the record with the greatest offset counts, whatever it says": Case(
        [[("k", "a", "2")], [("k", "a", "1")]],
        [("k", "a", "2")],
        {"a": group(1, "2")},
        [[(1, "k", "a", "2")], []],
        versions=[2, 1],
        differs="the sequence counts; with sequence='_origin.offset' a topic is read as there",
    ),
    "Materialize, ENVELOPE UPSERT: a record without a key is an error": Case(
        [[("k", "a", "1"), (None, "a", "7")], [("l", "a", "2")]],
        [("k", "a", "1"), ("l", "a", "2")],
        {"a": group(2, "3", "2", "1", 2)},
        rejected=1,
        differs="there the source cannot be queried until it is gone; here it is rejected with the reason",
    ),
    "Materialize, ENVELOPE DEBEZIUM: a changed primary key comes as a delete and an insert": Case(
        [[("1", "a", "1")], [("1", None, None), ("2", "a", "1")]],
        [("2", "a", "1")],
        {"a": group(1, "1")},
        [[(1, "1", "a", "1")], [(-1, "1", "a", "1"), (1, "2", "a", "1")]],
    ),
    "Materialize, ENVELOPE DEBEZIUM: a row that is deleted twice is deleted once": Case(
        [[("1", "a", "1")], [("1", None, None)], [("1", None, None)]],
        [],
        {},
        [[(1, "1", "a", "1")], [(-1, "1", "a", "1")], []],
    ),
}
ROUNDS = max(len(case.rounds) for case in CASES.values())


@pytest.fixture(scope="module")
def ran(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The lake after all rounds of all cases."""
    lake = Lake(str(tmp_path_factory.mktemp("cases") / "lake"))
    Path(lake.path("landing/revisions")).mkdir(parents=True)
    batches = [[revision for name, case in CASES.items() for revision in _round(name, case, n)] for n in range(ROUNDS)]
    run(spark, lake, PIPELINE, *batches, end_of_input=True)
    return lake


@dataclass(frozen=True)
class Outcome:
    """Rows of all cases, which begin with the name of the case; each table is read once."""

    standing: Rows
    groups: Rows
    signed: Rows
    rejected: list[str]

    @staticmethod
    def of(rows: Rows, name: str) -> Rows:
        return [row[1:] for row in rows if row[0] == name]


@pytest.fixture(scope="module")
def outcome(spark: SparkSession, ran: Lake) -> Outcome:
    def collected(frame: DataFrame, *columns: str) -> Rows:
        return [tuple(row) for row in frame.select(*columns).collect()]

    rejected = read_log(spark, ran, REVISIONS.revisions).where("_rejected is not null")
    return Outcome(
        collected(rows_now(spark, ran, REVISIONS), "of", "id", "name", "value"),
        collected(read_current(spark, ran, GROUPS), "of", "name", *GROUPS.aggregates),
        collected(
            read_log(spark, ran, REVISIONS).where("_day is not null"),
            *("of", "_batch", "_origin.change", "id", "name", "value"),
        ),
        [row[0] for row in collected(rejected.selectExpr("cast(_raw as string) as raw"), "raw")],
    )


def _round(name: str, case: Case, number: int) -> list[dict[str, Any]]:
    if number >= len(case.rounds):
        return []
    first = sum(map(len, case.rounds[:number]))
    return [
        {
            "of": name,
            "id": id,
            "version": first + place if case.versions is None else case.versions[number],
            "at": None if of is None else at(60).isoformat(),
            "name": of,
            "value": None if value is None else float(value),
        }
        for place, (id, of, value) in enumerate(case.rounds[number], 1)
    ]


@pytest.mark.parametrize("name", CASES)
def test_a_case_of_retraction_or_upsert_gives_what_is_documented_or_differs_for_a_reason(
    outcome: Outcome, name: str
) -> None:
    case = CASES[name]
    standing = Outcome.of(outcome.standing, name)
    assert sorted(standing, key=str) == sorted(((*row[:2], _decimal(row[2])) for row in case.stands), key=str)
    told = {row[0]: row[1:] for row in Outcome.of(outcome.groups, name)}
    groups = case.groups or {}
    assert told == {of: (each[0], *map(_decimal, each[1:4]), each[4]) for of, each in groups.items()}
    if case.changes is not None:
        rounds: list[list[Any]] = [[] for _ in case.changes]
        for batch, *row in Outcome.of(outcome.signed, name):
            rounds[batch].append(tuple(row))
        expected = [[(*each[:3], _decimal(each[3])) for each in of_round] for of_round in case.changes]
        assert [sorted(each, key=str) for each in rounds] == [sorted(each, key=str) for each in expected]
    assert sum(name[:40] in raw for raw in outcome.rejected) == case.rejected


def test_every_law_holds_of_all_cases_together(spark: SparkSession, ran: Lake) -> None:
    assert [finding for finding in audit(spark, ran, PIPELINE) if not finding.holds] == []


def _decimal(text: str | None) -> Decimal | None:
    return None if text is None else Decimal(text).quantize(Decimal("0.001"))
