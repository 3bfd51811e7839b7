"""What is current of an operator is a plain table, and each change of it is told once, whatever happened between."""

from __future__ import annotations

import math
import random
import shutil
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from streaming import Keyed, Lake, Pipeline, Tumbling, Windowed, agg, drain
from streaming.audit.laws import audit
from streaming.changes import Publishing, publish
from streaming.changes import publishing as module
from streaming.changes.looks import rows_as_texts
from streaming.declare.operator import Operator
from streaming.keyed import Key
from streaming.operations.erasure import Person, erase
from streaming.operations.maintenance import maintain
from streaming.operations.rebuild import rebuild
from streaming.operations.restore import restore, restore_to
from streaming.operations.savepoint import savepoint
from streaming.operators.runtime import runtime_of
from streaming.reading.stored import stored_rows
from streaming.tables import arrow, delta
from tests.streaming.deliveries.test_joins_delivered import OPERATORS, clicks, land
from tests.streaming.deliveries.test_joins_delivered import PIPELINE as SHOP
from tests.streaming.deliveries.test_joins_delivered import ads as advertisements
from tests.support.delivering import by_id, pipeline, reading, readings, visits
from tests.support.instants import NOW, at
from tests.support.killed import Killed, killed_at
from tests.support.runs import run
from tests.support.seeds import draws
from tidemark.testing import correct

BEGIN = at(0)


def echo(key: Key, row: Any) -> None:
    key.emit(value=row.value)


ECHOED = Keyed(
    "echoed",
    readings,
    ("id",),
    state="rows bigint",
    result="value bigint",
    on_row=echo,
    order="event",
    idle="1 minute",
)


def told(lake: Lake, operator: Operator, suffix: str) -> list[dict[str, Any]]:
    """The rows of a published table, read as any other program would."""
    return DeltaTable(lake.table(operator, suffix)).to_pyarrow_table().to_pylist()


def _values(row: dict[str, Any], operator: Operator) -> str:
    values = (row[name] for name in operator.columns)
    return repr([value.astimezone(UTC) if isinstance(value, datetime) else value for value in values])


def net(lake: Lake, operator: Operator) -> Counter[str]:
    """The results whose changes add up to one, or of equal ones to how many there are; none may add up to less."""
    counts: Counter[str] = Counter()
    for row in sorted(told(lake, operator, "changes"), key=lambda row: row["_revision"]):
        counts[_values(row, operator)] += row["_change"]
        assert counts[_values(row, operator)] >= 0
    return +counts


def standing(lake: Lake, operator: Operator) -> Counter[str]:
    return Counter(_values(row, operator) for row in told(lake, operator, "current"))


def overlaid(spark: SparkSession, lake: Lake, operator: Operator) -> Counter[str]:
    """The other side of the law: first results overlaid with updates and corrections."""
    rows = runtime_of(operator, lake).readable["current"](spark).select(*operator.columns).toArrow().to_pylist()
    return Counter(_values(row, operator) for row in rows)


def sums(lake: Lake, suffix: str, *columns: str) -> list[tuple[Any, ...]]:
    rows = told(lake, by_id, suffix)
    named = ("id", "window_start", "readings", "total", *columns)
    return sorted(
        tuple(
            (value - BEGIN).total_seconds() if isinstance(value, datetime) else value for value in map(row.get, named)
        )
        for row in rows
    )


def test_a_late_row_takes_the_old_number_back_and_adds_the_new_one_in_one_revision(
    spark: SparkSession, lake: Lake
) -> None:
    """```
    on time  a@1=5 b@3=7 ... a@40=1          the windows at 0 close
    late                            a@2=2    the window of a at 0 is corrected
    ```
    """
    run(spark, lake, pipeline(), [reading("a", 1, 5), reading("b", 3, 7), reading("a", 40, 1)])
    assert sums(lake, "current", "_reason", "_revision") == [("a", 0, 1, 5, "first", 0), ("b", 0, 1, 7, "first", 0)]

    run(spark, lake, pipeline(), [reading("a", 2, 2)])
    assert len(sums(lake, "changes")) == 2

    assert correct(spark, lake, by_id)
    assert publish(spark, lake, by_id)
    assert sums(lake, "current", "_reason", "_revision") == [
        ("a", 0, 2, 7, "correction", 1),
        ("b", 0, 1, 7, "first", 0),
    ]
    assert sums(lake, "changes", "_change", "_reason", "_revision") == [
        ("a", 0, 1, 5, -1, "correction", 1),
        ("a", 0, 1, 5, 1, "first", 0),
        ("a", 0, 2, 7, 1, "correction", 1),
        ("b", 0, 1, 7, 1, "first", 0),
    ]
    assert {row["_clock"] for row in told(lake, by_id, "changes")} == {at(35)}
    assert not publish(spark, lake, by_id)


@pytest.mark.long
def test_anybody_can_read_the_tables_by_the_oldest_protocol(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, pipeline(), [reading("a", 1, 5), reading("a", 40, 1)])
    for suffix in ("changes", "current"):
        protocol = DeltaTable(lake.table(by_id, suffix)).protocol()
        assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_changes_add_up_to_what_is_current_whatever_was_late_corrected_or_built_anew(
    spark: SparkSession, lake: Lake, seed: int
) -> None:
    """Tumbling windows, sessions that late rows merge, and the echoes of a keyed function, some of them equal."""
    chance, operators = draws(f"published {seed}"), (by_id, visits, ECHOED)
    of_all = Pipeline(readings, operators)
    for moment in range(4):
        until = 100.0 + 40 * moment
        run(spark, lake, of_all, [_some_row(chance, until) for _ in range(6)], [_some_row(chance, until + 20)])
        for operator in chance.sample(operators, 2):
            correct(spark, lake, operator, lambda: NOW)
        if moment == 2:
            rebuild(spark, lake, of_all, chance.choice(operators), now=lambda: NOW)
        for operator in operators:
            publish(spark, lake, operator)
            assert net(lake, operator) == standing(lake, operator) == overlaid(spark, lake, operator)
    # Whatever was drawn, there is a number to be taken back.
    run(spark, lake, of_all, [reading("a", 500, 1), reading("a", 600, 1)])
    run(spark, lake, of_all, [reading("a", 500.5, 1)])
    correct(spark, lake, by_id, lambda: NOW)
    publish(spark, lake, by_id)
    assert net(lake, by_id) == standing(lake, by_id) == overlaid(spark, lake, by_id)
    assert {row["_change"] for row in told(lake, by_id, "changes")} == {1, -1}


def _some_row(chance: random.Random, until: float) -> dict[str, Any]:
    """A row of one of two keys, often late by up to a minute and a half, often like another one."""
    seconds = max(0.0, until - chance.choice((0, 3, 9, 30, 90)))
    return reading(chance.choice("ab"), seconds, chance.choice((1, 2)))


@pytest.mark.long
def test_a_pair_that_comes_late_takes_back_the_row_that_was_told_alone(spark: SparkSession, lake: Lake) -> None:
    paid, met, _ = OPERATORS
    land(lake, clicks, "k@1=1 k@60=9")
    land(lake, advertisements, "z@40=8 z@61=8")
    drain(spark, lake, SHOP, now=lambda: NOW)
    assert [row["ad"] for row in told(lake, paid, "current") if row["click"] == 1] == [None]

    land(lake, advertisements, "k@3=7")
    drain(spark, lake, SHOP, now=lambda: NOW)
    correct(spark, lake, met, lambda: NOW)
    publish(spark, lake, met)
    assert [row["ad"] for row in told(lake, paid, "current") if row["click"] == 1] == [7]
    changes = {(row["ad"], row["_change"], row["_reason"]) for row in told(lake, paid, "changes") if row["click"] == 1}
    assert changes == {(None, 1, "first"), (None, -1, "correction"), (7, 1, "correction")}
    for operator in OPERATORS:
        assert net(lake, operator) == standing(lake, operator) == overlaid(spark, lake, operator)


@pytest.mark.sampled
@pytest.mark.parametrize("nth", [1, 2])
def test_a_process_killed_between_two_commits_leaves_nothing_to_compute(
    spark: SparkSession, lake: Lake, nth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first commit is that of the changes, the second that of the results."""
    run(spark, lake, pipeline(), [reading("a", 1, 5), reading("b", 3, 7), reading("a", 40, 1)], [reading("a", 2, 2)])
    correct(spark, lake, by_id, lambda: NOW)
    before = standing(lake, by_id)
    with monkeypatch.context() as patched:
        killed_at(nth, patched)
        with pytest.raises(Killed):
            publish(spark, lake, by_id)
    assert standing(lake, by_id) == before
    assert (net(lake, by_id) == before) is (nth == 1)
    if nth == 2:
        looks = list[object]()
        monkeypatch.setattr(Publishing, "_look", lambda *args, **kwargs: looks.append(args))
        publish(spark, lake, by_id)
        assert not looks
    else:
        publish(spark, lake, by_id)
    assert net(lake, by_id) == standing(lake, by_id) == overlaid(spark, lake, by_id) != before


@pytest.mark.long
def test_of_two_processes_that_look_at_once_one_begins_again(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(spark, lake, Pipeline(readings, (visits,)), [reading("a", 1, 5), reading("a", 40, 1)])
    first, rival = Publishing(lake, by_id), Publishing(lake, by_id)
    stage, raced = delta.stage_portions, list[bool]()

    def overtaken(*args: Any, **kwargs: Any) -> Any:
        staged = stage(*args, **kwargs)
        if not raced:
            raced.append(True)
            raced.append(rival.publish(spark))
        return staged

    _step_only(spark, lake)
    monkeypatch.setattr(delta, "stage_portions", overtaken)
    first.publish(spark)
    assert raced == [True, True]
    assert net(lake, by_id) == standing(lake, by_id) == overlaid(spark, lake, by_id)


def _step_only(spark: SparkSession, lake: Lake) -> None:
    """First results, of which nothing is published yet."""
    for step in runtime_of(by_id, lake).steps(spark, lambda: NOW):
        step.run()


@pytest.mark.long
def test_an_operator_that_is_built_anew_with_another_type_begins_its_changes_anew(
    spark: SparkSession, lake: Lake
) -> None:
    """Sums become means: what was told before cannot be compared with what is current."""
    run(spark, lake, pipeline(), [reading("a", 1, 5), reading("a", 2, 6), reading("a", 40, 1)])
    means = replace(by_id, aggregates={"readings": agg.count(), "total": agg.mean("value")})
    other = Pipeline(readings, (means, visits))
    rebuild(spark, lake, other, means, now=lambda: NOW)
    drain(spark, lake, other, now=lambda: NOW)
    assert sums(lake, "changes", "_change", "_revision") == [("a", 0, 2, 5.5, 1, 1)]
    assert sums(lake, "current", "_revision") == [("a", 0, 2, 5.5, 1)]


@pytest.mark.long
def test_a_column_that_is_gone_is_in_the_results_no_more(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, pipeline(), [reading("a", 1, 5), reading("a", 40, 1)])
    fewer = replace(by_id, aggregates={"total": agg.sum("value")})
    other = Pipeline(readings, (fewer, visits))
    rebuild(spark, lake, other, fewer, now=lambda: NOW)
    drain(spark, lake, other, now=lambda: NOW)
    (row,) = told(lake, fewer, "current")
    assert row["total"] == 5 and "readings" not in row
    assert net(lake, fewer) == standing(lake, fewer) == overlaid(spark, lake, fewer)


@pytest.mark.long
def test_more_results_than_are_told_in_memory_are_told_by_tasks(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_IN_MEMORY", 1)
    rows = [reading(id_, 1 + 40 * day, day) for day in range(3) for id_ in "abc"]
    run(spark, lake, Pipeline(readings, (ECHOED,)), rows)
    assert len(told(lake, ECHOED, "current")) > 1
    assert net(lake, ECHOED) == standing(lake, ECHOED) == overlaid(spark, lake, ECHOED)


def test_many_results_that_are_only_added_are_told_as_few_are_and_compared_with_none(
    spark: SparkSession, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """```
    on time  a@1 b@1 c@1  a@41              the windows at 0 close
             b@81                           that of a at 40 closes
    late            a@2                     the window of a at 0 is corrected, and later ones are not its day's alone
             a@121                          that of b at 80 closes
    ```
    """
    other = Lake(str(tmp_path / "other"))

    def results(of: Lake) -> list[list[tuple[Any, ...]]]:
        return [
            sorted(tuple(row[name] for name in sorted(row)) for row in told(of, by_id, suffix))
            for suffix in ("changes", "current")
        ]

    def add(*rows: Any) -> None:
        run(spark, other, pipeline(), list(rows))
        with monkeypatch.context() as patched:
            patched.setattr(module, "_IN_MEMORY", 0)
            # A portion is a row.
            patched.setattr(arrow, "_AT_ONCE", 1)
            run(spark, lake, pipeline(), list(rows))
        assert results(lake) == results(other)

    with monkeypatch.context() as patched:
        patched.delattr(Publishing, "_differing")
        add(*(reading(id_, 1, 5) for id_ in "abc"), reading("a", 41, 1))
        add(reading("b", 81, 2))
    assert [row["_revision"] for row in told(lake, by_id, "changes")].count(0) == 3
    for each in (other, lake):
        run(spark, each, pipeline(), [reading("a", 2, 2)])
        assert correct(spark, each, by_id) and publish(spark, each, by_id)
    add(reading("a", 121, 4))
    assert net(lake, by_id) == standing(lake, by_id) == overlaid(spark, lake, by_id)


def test_a_view_that_corrects_nothing_publishes_nothing(spark: SparkSession, lake: Lake) -> None:
    uncorrected = Windowed("uncorrected", readings, Tumbling("10 seconds"), {"readings": agg.count()}, late="drop")
    run(spark, lake, Pipeline(readings, (uncorrected,)), [reading("a", 1, 5), reading("a", 40, 1)])
    assert uncorrected.published == ()
    assert not DeltaTable.is_deltatable(lake.table(uncorrected, "current"))


@pytest.mark.long
def test_a_second_lake_that_is_made_of_a_savepoint_goes_on_with_the_revisions(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    run(spark, lake, pipeline(), [reading("a", 1, 5), reading("b", 3, 7), reading("a", 40, 1)])
    run(spark, lake, pipeline(), [reading("a", 2, 2)])
    savepoint(lake, pipeline(), "kept", lambda: NOW)
    second = Lake(str(tmp_path / "second"))
    restore_to(lake, pipeline(), "kept", second)
    assert standing(second, by_id) == standing(lake, by_id)

    correct(spark, second, by_id, lambda: NOW)
    publish(spark, second, by_id)
    assert sums(second, "current", "_revision") == [("a", 0, 2, 7, 1), ("b", 0, 1, 7, 0)]
    assert sums(lake, "current", "_revision") == [("a", 0, 1, 5, 0), ("b", 0, 1, 7, 0)]
    assert net(second, by_id) == standing(second, by_id) == overlaid(spark, second, by_id)


@pytest.mark.long
def test_what_an_operator_was_put_back_to_is_the_next_revision(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, pipeline(), [reading("a", 1, 5), reading("a", 40, 1)])
    savepoint(lake, pipeline(), "kept", lambda: NOW)
    run(spark, lake, pipeline(), [reading("a", 2, 2)])
    correct(spark, lake, by_id, lambda: NOW)
    publish(spark, lake, by_id)
    assert sums(lake, "current", "_revision") == [("a", 0, 2, 7, 1)]

    restore(spark, lake, pipeline(), "kept", lambda: NOW)
    assert sums(lake, "current", "_revision") == [("a", 0, 1, 5, 2)]
    assert net(lake, by_id) == standing(lake, by_id) == overlaid(spark, lake, by_id)


@pytest.mark.long
def test_nothing_that_a_person_was_part_of_is_left_in_changes_once_they_are_erased(
    spark: SparkSession, lake: Lake
) -> None:
    """Sums of all, in which the rows of b are: they are computed again without, and no older number is left."""
    totals = replace(by_id, name="totals", by=())
    of_all = Pipeline(readings, (totals,))
    run(spark, lake, of_all, [reading("a", 1, 5), reading("b", 3, 7), reading("a", 40, 1)])
    assert [row["total"] for row in told(lake, totals, "changes")] == [12]

    erase(spark, lake, of_all, Person.of("id=b"), now=lambda: NOW)
    assert [(row["total"], row["_change"]) for row in told(lake, totals, "changes")] == [(5, 1)]
    assert [row["total"] for row in told(lake, totals, "current")] == [5]
    changes = lake.table(totals, "changes")
    for commit in DeltaTable(changes).history():
        assert DeltaTable(changes, commit["version"]).to_pyarrow_table()["total"].to_pylist() == [5]


@pytest.mark.sampled
@pytest.mark.parametrize("damaged", ["current", "changes"])
def test_the_audit_finds_a_table_that_somebody_has_changed(spark: SparkSession, lake: Lake, damaged: str) -> None:
    run(spark, lake, pipeline(), [reading("a", 1, 5), reading("b", 3, 7), reading("a", 40, 1)])
    laws = list(Publishing(lake, by_id).laws(spark))
    assert len(laws) == 2 and all(finding.holds and finding.checked == 2 for finding in laws)

    DeltaTable(lake.table(by_id, damaged)).delete("id = 'b'")
    broken = [finding.compared for finding in audit(spark, lake, pipeline()) if not finding.holds]
    assert len(broken) == (2 if damaged == "current" else 1)


def test_results_are_published_anew_where_their_table_was_removed(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, pipeline(), [reading("a", 1, 5), reading("b", 3, 7), reading("a", 40, 1)])
    before = standing(lake, by_id)
    shutil.rmtree(lake.table(by_id, "current"))
    publish(spark, lake, by_id)
    assert standing(lake, by_id) == before
    maintain(lake, pipeline(), now=lambda: NOW + timedelta(days=60))
    assert standing(lake, by_id) == net(lake, by_id) == before


def test_nothing_is_left_where_everybody_was_erased(spark: SparkSession, lake: Lake) -> None:
    of_all = Pipeline(readings, (by_id,))
    run(spark, lake, of_all, [reading("b", 3, 7), reading("b", 40, 1)])
    assert len(told(lake, by_id, "changes")) == 1
    erase(spark, lake, of_all, Person.of("id=b"), now=lambda: NOW)
    assert told(lake, by_id, "changes") == told(lake, by_id, "current") == []


def test_tables_that_maintenance_has_rewritten_have_nothing_new(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, pipeline(), [reading("a", 1, 5), reading("a", 40, 1)], [reading("a", 2, 2)])
    correct(spark, lake, by_id, lambda: NOW)
    publish(spark, lake, by_id)
    before = told(lake, by_id, "changes")
    for suffix in ("", "corrections", "current", "changes"):
        DeltaTable(lake.table(by_id, suffix)).optimize.compact()
        DeltaTable(lake.table(by_id, suffix)).optimize.z_order(["window_start"])
    assert not publish(spark, lake, by_id)
    assert sorted(map(str, told(lake, by_id, "changes"))) == sorted(map(str, before))


def test_results_of_an_earlier_build_are_not_read_as_current(spark: SparkSession, lake: Lake) -> None:
    """Whoever switches to what was built anew may die before it has looked."""
    run(spark, lake, pipeline(), [reading("a", 1, 5), reading("a", 40, 1)], [reading("a", 2, 2)])
    correct(spark, lake, by_id, lambda: NOW)
    publish(spark, lake, by_id)
    assert stored_rows(lake, pipeline(), by_id) is not None
    numbers = {"of_generation": 1}
    delta.note(lake.table(by_id, "changes"), says=numbers, numbers=numbers)
    assert stored_rows(lake, pipeline(), by_id) is None
    publish(spark, lake, by_id)
    assert stored_rows(lake, pipeline(), by_id) is not None


def test_values_of_any_year_and_bytes_that_are_no_text_are_told_apart() -> None:
    far = pa.array([10**18, 10**18 + 1, None, 10**18], pa.timestamp("us", "UTC"))
    values = {
        "at": far,
        "day": pa.array([4_000_000, 4_000_001, 0, 4_000_000], pa.int32()).cast(pa.date32()),
        "x": [math.nan, 1.0, math.nan, math.nan],
        "text": pa.array([b"\xff", b"\xfe", b"a", b"\xff"], pa.binary()).cast(pa.string(), safe=False),
    }
    for name in values:
        one, other, another, same = rows_as_texts(pa.table(values), [name])
        assert one == same != other
    one, other, another, same = rows_as_texts(pa.table(values), [*values])
    assert len({one, other, another}) == 3 and one == same


def test_results_that_spark_takes_for_equal_are_numbered_one_after_the_other() -> None:
    tags = pa.array([[("a", 1), ("b", 2)], [("b", 2), ("a", 1)], [("a", 1)], None], pa.map_(pa.string(), pa.int64()))
    zeros = pa.array([0.0, -0.0, 1.0, -0.0])
    assert module._copies(pa.table({"tags": tags})) == [1, 2, 1, 1]
    assert module._copies(pa.table({"x": zeros})) == [1, 2, 1, 3]
    assert module._copies(pa.table({"xs": pa.array([[0.0], [-0.0], [1.0], [0.0, 1.0]])})) == [1, 2, 1, 1]
    assert module._copies(pa.table({"tags": tags, "x": zeros})) == [1, 2, 1, 1]
    assert module._copies(pa.table({"x": pa.array([math.nan, math.nan]), "id": ["0.0", "0.0"]})) == [1, 2]
    assert module._copies(pa.table({"id": ["0.0", "-0.0", "0.0"]})) == [1, 1, 2]
