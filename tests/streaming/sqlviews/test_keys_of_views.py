"""Keys of SQL views, of each type: rows are of a key by the values that Spark takes for equal, and no others are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import BoundedOutOfOrderness, Files, Json, Lake, Pipeline, Stream, Tumbling, View, Windowed, agg
from streaming.audit.laws import audit
from streaming.declare import CURRENT
from streaming.operators.runtime import runtime_of
from streaming.sqlviews import partners, steps
from streaming.tables import delta
from tests.support.instants import NOW, at
from tests.support.runs import run
from tidemark.testing import land_all

ROWS = Stream(
    name="rows",
    source=Files("landing/rows"),
    format=Json(
        "id string, version bigint, at timestamp, text string, money decimal(9, 2), parts array<int>, op string"
    ),
    event_time="at",
    clock=BoundedOutOfOrderness("10 seconds", max_ahead="30 days"),
    key=("id",),
    sequence="version",
    deletes="op = 'd'",
)
CLICKS = Stream(
    name="clicks",
    source=Files("landing/clicks"),
    format=Json("at timestamp, page string, day date"),
    event_time="at",
    clock=BoundedOutOfOrderness("10 seconds", max_ahead="30 days"),
)
BY_TEXT = View(
    "by_text",
    "select text, money, count(*) as number, max(id) as last from rows group by text, money",
    of=(ROWS,),
    key=("text", "money"),
)
SHARES = View(
    "shares", "select id, cast(text as double) as share, parts from rows where text <> 'none'", of=(ROWS,), key=("id",)
)
BY_SHARE = View("by_share", "select share, count(*) as number from shares group by share", of=(SHARES,), key=("share",))
BY_PARTS = View("by_parts", "select parts, id from shares", of=(SHARES,), key=("parts",))
BY_INSTANT = View(
    "by_instant",
    "select c.at, c.day, count(*) as number, count(r.id) as met"
    " from clicks c left join rows r on r.text = c.page group by c.at, c.day",
    of=(CLICKS, ROWS),
    key=("at", "day"),
)
VIEWS = (BY_TEXT, SHARES, BY_SHARE, BY_PARTS, BY_INSTANT)
PIPELINE = Pipeline(name="keys", streams=(ROWS, CLICKS), operators=VIEWS)

Row = tuple[str, str | None, str | None, list[int | None] | None]
FIRST: list[Row] = [
    ("a", "NaN", "1.10", [1]),
    ("b", "0.0", None, []),
    ("c", None, "1.10", None),
    ("d", "none", "1.1", [None]),
    ("e", "1.5", "2", [1]),
    ("f", "1.5", "2", [1]),
]
SECOND: list[Row] = [
    ("a", "-0.0", "1.10", [1]),
    ("c", None, "1.10", [1, None]),
    ("e", "NaN", "2", None),
    ("g", None, None, []),
]
THIRD: list[Row] = [("b", "NaN", None, [1]), ("g", None, "1.10", None)]
DAYS = (None, "2026-01-05")


def lands(lake: Lake, rows: Sequence[Row], version: int, gone: Sequence[str] = ()) -> None:
    """Revisions of rows, and two clicks at the same instant, of which one has no day."""
    values = [
        {
            "id": id_,
            "version": version,
            "at": at(version).isoformat(),
            "text": text,
            "money": money and float(money),
            "parts": parts,
        }
        for id_, text, money, parts in rows
    ]
    ends = [{"id": id_, "version": version, "at": at(version).isoformat(), "op": "d"} for id_ in gone]
    land_all(lake, ROWS, [*values, *ends])
    land_all(lake, CLICKS, [{"at": at(version % 2).isoformat(), "page": "NaN", "day": day} for day in DAYS])


def form(value: Any) -> Any:
    """A value as Spark groups it: NaN is NaN, and zeros have no sign."""
    if isinstance(value, float):
        return "NaN" if value != value else value + 0.0
    return tuple(map(form, value)) if isinstance(value, list) else value


def current(spark: SparkSession, lake: Lake, view: View) -> Counter[Any]:
    rows = delta.read(spark, lake.table(view, CURRENT)).select(*view.columns).collect()
    return Counter(tuple(map(form, row)) for row in rows)


def wanted(stands: dict[str, Row], versions: Sequence[int]) -> dict[str, Counter[Any]]:
    """The rows of each view, by plain Python."""
    money = {id_: None if row[2] is None else Decimal(row[2]).quantize(Decimal("0.01")) for id_, row in stands.items()}
    texts = Counter((row[1], money[id_]) for id_, row in stands.items())
    last = {key: max(id_ for id_, row in stands.items() if (row[1], money[id_]) == key) for key in texts}
    shares = {id_: row for id_, row in stands.items() if row[1] not in (None, "none")}
    numbers = Counter(form(float(row[1] or "")) for row in shares.values())
    met = sum(row[1] == "NaN" for row in stands.values())
    clicks = Counter(version % 2 for version in versions)
    days = {None: None, "2026-01-05": at(0).date().replace(2026, 1, 5)}
    return {
        "by_text": Counter((*key, number, last[key]) for key, number in texts.items()),
        "shares": Counter((id_, form(float(row[1] or "")), form(row[3])) for id_, row in shares.items()),
        "by_share": Counter(numbers.items()),
        "by_parts": Counter((form(row[3]), id_) for id_, row in shares.items()),
        "by_instant": Counter(
            (at(second).replace(tzinfo=None), days[day], number * max(met, 1), number * met)
            for second, number in clicks.items()
            for day in DAYS
        ),
    }


@pytest.mark.long
@pytest.mark.parametrize("most", [steps.MOST_IN_MEMORY, 1])
def test_rows_of_a_key_follow_whatever_its_type(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """
    step 0   texts, amounts, doubles, arrays and instants as keys; some are null, and two rows have the same
    step 1   NaN becomes a zero with a sign, and 1.5 becomes NaN; rows of no text differ by their arrays
    step 2   d and f are gone; what was zero is NaN, and a null is an amount
    """
    for module in (steps, partners):
        monkeypatch.setattr(module, "MOST_IN_MEMORY", most)
    stands = dict[str, Row]()
    for version, (rows, gone) in enumerate([(FIRST, ""), (SECOND, ""), (THIRD, "df")]):
        lands(lake, rows, version, gone)
        run(spark, lake, PIPELINE)
        stands = {id_: row for id_, row in {**stands, **{row[0]: row for row in rows}}.items() if id_ not in gone}
        expected = wanted(stands, range(version + 1))
        for view in VIEWS:
            assert current(spark, lake, view) == expected[view.name], (view.name, version)
    assert [finding for finding in audit(spark, lake, PIPELINE) if not finding.holds] == []


def test_keys_that_changed_rows_have_themselves_take_one_job(spark: SparkSession, lake: Lake) -> None:
    by_page = View("by_page", "select page, count(*) as clicks from clicks group by page", of=(CLICKS,), key=("page",))
    by_hour = Windowed("by_hour", CLICKS, Tumbling("1 hour"), {"clicks": agg.count()})
    for page, operator in (("a", by_page), ("b", by_hour)):
        land_all(lake, CLICKS, [{"at": at(1).isoformat(), "page": each} for each in ("a", page, None)])
        run(spark, lake, Pipeline(CLICKS, (operator,)))
    spark.sparkContext.setJobGroup("step", "a step of few rows")
    for step in runtime_of(by_page, lake).steps(spark, lambda: NOW):
        step.run()
    assert len(spark.sparkContext.statusTracker().getJobIdsForGroup("step")) == 1
