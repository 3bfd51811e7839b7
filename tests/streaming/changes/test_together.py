"""The versions in `current.json` belong together: all of them have followed the same batches of the logs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from streaming import Lake, Pipeline, Selected, View
from streaming.base import FrozenMapping, ReadError
from streaming.changes import Together, note_together, publish
from streaming.changes.together import _meeting, _Point
from streaming.operations.erasure import Person, erase
from streaming.operations.maintenance import maintain
from streaming.operators import Progress, analysis_of
from streaming.service.observer import Observer
from streaming.service.run import Run
from streaming.tables import Manifest
from tests.support.delivering import by_id, reading, readings
from tests.support.instants import NOW
from tests.support.publishing import unpublish
from tests.support.runs import run
from tidemark import read
from tidemark.testing import correct

updated = replace(by_id, name="updated", late="update", allowed_lateness="1 minute")
kept = Selected("kept", readings, {"id": "id", "value": "value"})
sums = View("sums", "select id, sum(total) as total from by_id group by id", of=(by_id,), key=("id",))
most = View("most", "select max(total) as total from sums", of=(sums,))
SHOP = Pipeline(readings, (by_id, updated, kept), name="shop")

FIRST = [reading("a", 1, 5), reading("b", 2, 7), reading("a", 40, 1)]
"""Closes the windows of the first half minute."""
SECOND = [reading("a", 3, 2), reading("b", 80, 1)]
"""Brings a late row, and closes the next windows."""


def manifest(lake: Lake) -> Manifest:
    found = Manifest.read(lake, SHOP)
    assert found is not None
    return found


def rows_at(lake: Lake, place: str) -> list[dict[str, Any]]:
    return DeltaTable(lake.path(place), version=manifest(lake).versions[place]).to_pyarrow_table().to_pylist()


def total(lake: Lake, operator: Any = by_id) -> int:
    return sum(row["total"] for row in read(SHOP, operator, cut=True, lake=lake).arrow().to_pylist())


def point(through: dict[str, int], revisions: dict[str, int]) -> _Point:
    return _Point(FrozenMapping(through), FrozenMapping({}), FrozenMapping(revisions))


def test_views_over_views_meet_at_the_revisions_that_they_have_followed() -> None:
    """```
    by_id    batch 2, revision 5                        batch 1, revision 4
    sums                                                revision 8, of revision 4 of by_id
    most     revision 1, of revision 9 of sums          revision 0, of revision 8
    ```
    """
    by_ids = [point({"readings": 2}, {"by_id": 5}), point({"readings": 1}, {"by_id": 4})]
    of_sums = [point({}, {"by_id": 4, "sums": 8})]
    of_most = [point({}, {"sums": 9, "most": 1}), point({}, {"sums": 8, "most": 0})]
    assert _meeting([by_ids, of_sums, of_most]) == [by_ids[1], of_sums[0], of_most[1]]
    assert _meeting([by_ids, of_sums, of_most[:1]]) is None
    assert _meeting([by_ids[:1], of_sums]) is None


def test_operators_of_one_log_meet_at_its_batches_whatever_their_own_revisions() -> None:
    views = [point({"readings": 2}, {"by_id": 5}), point({"readings": 1}, {"by_id": 4})]
    others = [point({"readings": 1}, {"updated": 9})]
    assert _meeting([views, others]) == [views[1], others[0]]
    assert _meeting([views[:1], others]) is None
    assert _meeting([views, []]) is None


def test_a_run_ends_with_versions_that_belong_together(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, SHOP, FIRST)
    written = manifest(lake)
    assert written.through == {"readings": 0}
    assert written.without == {}
    assert {place.rpartition("/")[2] for place in written.versions} == {
        *("log", "by_id", "by_id_changes", "by_id_current", "updated", "updated_changes", "updated_current", "kept"),
    }
    run(spark, lake, SHOP, SECOND)
    assert manifest(lake).through == {"readings": 1}
    assert Counter(row["id"] for row in rows_at(lake, "readings/log") if row["id"]) == {"a": 3, "b": 2}
    assert len(rows_at(lake, "readings/kept")) == 5


def test_tables_in_which_nothing_is_published_yet_belong_to_nothing(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, SHOP, FIRST)
    before = manifest(lake)
    unpublish(lake, by_id)
    assert note_together(lake, SHOP) == before


@pytest.mark.long
def test_an_operator_that_has_followed_less_keeps_the_versions_of_before(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, SHOP, FIRST)
    before = manifest(lake)
    # Only a part of the pipeline runs: its own manifest is another one's.
    run(spark, lake, Pipeline(readings, (by_id,), name="part"), SECOND)
    assert note_together(lake, SHOP) == before
    assert Counter(row["id"] for row in rows_at(lake, "readings/log") if row["id"]) == {"a": 2, "b": 1}
    assert total(lake) == 12
    behind = Run(spark, lake, SHOP, Observer(lambda: NOW))
    behind.step_all()
    behind.catch_up()
    behind.publish_all()
    assert manifest(lake).through == {"readings": 1}
    assert total(lake) == 13


def sums_of(pipeline: Pipeline, lake: Lake) -> tuple[dict[str, int], dict[str, int], int]:
    """Totals by id of `by_id` and of `sums`, and the value of `most`, as they belong together."""
    windows, totals, ((top,),) = (
        [tuple(row[name] for name in names) for row in read(pipeline, of, cut=True, lake=lake).arrow().to_pylist()]
        for of, names in ((by_id, ("id", "total")), (sums, ("id", "total")), (most, ("total",)))
    )
    of_windows = Counter[str]()
    for id_, number in windows:
        of_windows[id_] += number
    return dict(of_windows), dict(totals), top


@pytest.mark.long
def test_views_over_views_are_named_as_of_what_they_have_followed(spark: SparkSession, lake: Lake) -> None:
    whole = Pipeline(readings, (by_id, sums, most), name="shop")
    run(spark, lake, whole, FIRST)
    before = manifest(lake)
    assert sums_of(whole, lake) == ({"a": 5, "b": 7}, {"a": 5, "b": 7}, 7)
    # The views over it wait, while it goes on.
    run(spark, lake, Pipeline(readings, (by_id,), name="part"), SECOND)
    assert note_together(lake, whole) == before
    assert sums_of(whole, lake) == ({"a": 5, "b": 7}, {"a": 5, "b": 7}, 7)
    run(spark, lake, Pipeline(readings, (by_id, sums), name="part"))
    assert note_together(lake, whole) == before
    run(spark, lake, whole)
    assert manifest(lake).through == {"readings": 1}
    assert sums_of(whole, lake) == ({"a": 6, "b": 7}, {"a": 6, "b": 7}, 7)


@pytest.mark.long
def test_what_a_view_has_followed_and_not_published_yet_is_not_named(spark: SparkSession, lake: Lake) -> None:
    whole = Pipeline(readings, (by_id, sums), name="shop")
    run(spark, lake, whole, FIRST)
    before, together = manifest(lake), Together(lake, whole)
    together.see(by_id)
    run(spark, lake, Pipeline(readings, (by_id,), name="part"), SECOND)
    unfinished = Run(spark, lake, whole, Observer(lambda: NOW))
    (of_sums,) = (each for each in unfinished.operators if each.operator == sums)
    unfinished.step(of_sums)
    assert together.note() == before


@pytest.mark.long
def test_a_correction_is_read_once_it_is_published(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, SHOP, FIRST)
    run(spark, lake, SHOP, SECOND)
    assert total(lake) == 13
    correct(spark, lake, by_id, lambda: NOW)
    assert note_together(lake, SHOP) == manifest(lake)
    assert total(lake) == 13
    publish(spark, lake, by_id)
    note_together(lake, SHOP)
    assert total(lake) == total(lake, updated) == 15


@pytest.mark.long
def test_versions_after_maintenance_can_be_read(spark: SparkSession, lake: Lake) -> None:
    for batch in (FIRST, SECOND, [reading("a", 81, 4)]):
        run(spark, lake, SHOP, batch)
    maintain(lake, SHOP, now=lambda: NOW)
    for place in manifest(lake).versions:
        assert DeltaTable(lake.path(place)).version() == manifest(lake).versions[place]
        rows_at(lake, place)


@pytest.mark.long
def test_nothing_is_named_that_an_erasure_has_removed(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, SHOP, FIRST)
    before = manifest(lake)
    erase(spark, lake, SHOP, Person.of("id=b"), now=lambda: NOW)
    assert manifest(lake) != before
    assert {row["id"] for row in read(SHOP, by_id, cut=True, lake=lake).arrow().to_pylist()} == {"a"}
    assert {row["id"] for row in rows_at(lake, "readings/log") if row["id"]} == {"a"}


@pytest.mark.long
def test_operators_meet_where_they_have_been_at_different_times(spark: SparkSession, lake: Lake) -> None:
    """```
    by_id    0   1
    kept           1   2        at no instant are both at the same batch
    ```
    """
    of_view, of_kept = Pipeline(readings, (by_id,), name="one"), Pipeline(readings, (kept,), name="other")
    together = Together(lake, Pipeline(readings, (by_id, kept), name="shop"))
    run(spark, lake, of_view, FIRST, SECOND)
    together.see(by_id)
    run(spark, lake, of_kept)
    together.see(kept)
    # The view goes on alone, and only then the other one.
    run(spark, lake, of_view, [reading("a", 90, 1)])
    assert Progress.now(lake, by_id).through != Progress.now(lake, kept).through
    assert together.note() is not None
    assert manifest(lake).through == {"readings": 1}
    assert len(rows_at(lake, "readings/kept")) == 5
    assert len({row["_batch"] for row in rows_at(lake, "readings/log")}) == 2


@pytest.mark.parametrize("left", ["", "{", "[]", '{"format": 1}', '{"format": 1, "through": 3}'])
def test_a_file_that_a_loss_of_power_has_left_is_none(lake: Lake, left: str) -> None:
    place = Path(lake.manifest(SHOP))
    place.parent.mkdir(parents=True)
    place.write_text(left)
    (place.parent / "analyses.json").write_text(left)
    assert Manifest.read(lake, SHOP) is None
    assert analysis_of(lake, SHOP, by_id) is None


def test_a_version_that_is_gone_is_told_with_the_way_out(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, SHOP, FIRST)
    last = manifest(lake)
    replace(last, versions={place: number + 100 for place, number in last.versions.items()}).write(lake, SHOP)
    with pytest.raises(ReadError, match="tidemark run shop"):
        total(lake)


@pytest.mark.long
def test_paused_operators_are_left_out_by_name(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, SHOP, FIRST)
    run(spark, lake, Pipeline(readings, (by_id, kept), name="shop"), SECOND)
    note_together(lake, SHOP, {"updated": "its tables are of another declaration"})
    assert manifest(lake).without == {"updated": "its tables are of another declaration"}
    assert total(lake) == 13
    with pytest.raises(ReadError, match=r"updated.*belong together"):
        total(lake, updated)


def test_what_belongs_to_no_cut_is_refused_with_the_way_out(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, SHOP, FIRST)
    with pytest.raises(ReadError, match="two moments"):
        read(SHOP, by_id, cut=True, as_of=0, lake=lake)
    with pytest.raises(ReadError, match="versionAsOf"):
        read(SHOP, by_id, cut=True, lake=lake, spark=spark)
    with pytest.raises(ReadError, match="readings/by_id_current"):
        read(SHOP, by_id, "corrections", cut=True, lake=lake)
    assert len(read(SHOP, by_id, "log", cut=True, lake=lake)) == 3
    assert len(read(SHOP, kept, cut=True, lake=lake)) == 3


@pytest.mark.long
def test_change_data_feed_is_on_where_it_is_declared(spark: SparkSession, lake: Lake) -> None:
    fed = Pipeline(readings, (by_id,), change_data_feed=True)
    run(spark, lake, Pipeline(readings, (by_id,)), FIRST)
    current = lake.table(by_id, "current")
    assert DeltaTable(current).protocol().min_writer_version == 2
    run(spark, lake, fed, SECOND)
    begun = DeltaTable(current).version()
    assert DeltaTable(current).protocol()[:2] == (1, 4)
    correct(spark, lake, by_id, lambda: NOW)
    publish(spark, lake, by_id)

    rows = pa.table(DeltaTable(current).load_cdf(starting_version=begun + 1)).to_pylist()
    assert Counter((row["_change_type"], row["id"], row["total"]) for row in rows if row["id"] == "a") >= Counter(
        {("delete", "a", 5): 1, ("insert", "a", 7): 1}
    )
    by_spark = (
        spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", begun + 1).load(current)
    )
    assert by_spark.where("id = 'a' and total = 7 and _change_type = 'insert'").count() == 1
