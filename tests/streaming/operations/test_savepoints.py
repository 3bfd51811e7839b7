"""A savepoint is what a kill at its instant would leave: whatever is restored of it goes on as after a restart."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructType

from streaming import agg
from streaming.audit.laws import audit
from streaming.base.errors import ChangedDeclaration, SavepointError
from streaming.declare.delivery import Delivery
from streaming.declare.enriched import Enriched
from streaming.declare.keyed import Keyed
from streaming.declare.operator import Operator
from streaming.declare.pipeline import Pipeline
from streaming.declare.windowed import Windowed
from streaming.lake.lake import Lake
from streaming.log.batches import read_batches
from streaming.operations.maintenance import maintain
from streaming.operations.redeliver import begin_anew
from streaming.operations.restore import restore, restore_to
from streaming.operations.savepoint import (
    SavedTable,
    Savepoint,
    drop_savepoint,
    find_savepoint,
    kept_bytes,
    savepoint,
    savepoints,
)
from streaming.operations.undeclared import drop
from streaming.operators.declaration import create_table
from streaming.operators.runtime import clean_state
from streaming.service.drain import drain
from streaming.sinks.files import JsonLines
from streaming.sources.files import move_files
from streaming.tables import delta, history, storage
from streaming.windows.session import SessionWindow
from tests.streaming.keyed.functions import payloads, readings, sums
from tests.support import lookups
from tests.support.feeds import land
from tests.support.instants import NOW
from tests.support.runs import run

visits = Windowed(
    name="visits",
    of=readings,
    by=("id",),
    window=SessionWindow("3 seconds"),
    aggregates={"readings": agg.count()},
)
squares = Enriched("squares", readings, lookups.after_a_while, {"square": "bigint"}, select=("id",))
out = Delivery("out", readings, JsonLines("exports/readings"))
pipeline = Pipeline(readings, (sums, visits), deliveries=(out,))


def drawn(numbers: range) -> list[dict[str, Any]]:
    """A reading a second, each a number under the name of its parity."""
    return payloads(", ".join(f"{'even' if n % 2 == 0 else 'odd'}@{n}={n}" for n in numbers))


def rows(lake: Lake, operator: Operator, suffix: str = "") -> list[str]:
    """What a table holds, but for when it was written."""
    table = DeltaTable(lake.table(operator, suffix)).to_pyarrow_table()
    kept = table.select([name for name in table.column_names if name != "_written_at"])
    return sorted(map(repr, kept.to_pylist()))


def totals(lake: Lake, keyed: Keyed = sums) -> dict[str, int]:
    """What the running sums have come to."""
    return {row["id"]: row["total"] for row in DeltaTable(lake.table(keyed, "state")).to_pyarrow_table().to_pylist()}


def broken(spark: SparkSession, lake: Lake) -> list[str]:
    return [finding.law for finding in audit(spark, lake, pipeline) if not finding.holds]


def exported(lake: Lake) -> list[str]:
    """The lines that were delivered."""
    files = Path(lake.path("exports/readings")).glob("20*/*")
    return [line for file in sorted(files) for line in file.read_text().splitlines()]


@pytest.fixture(scope="module")
def original(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Five numbers came, then `five` was taken, then five more came."""
    lake = Lake(str(tmp_path_factory.mktemp("savepoints") / "lake"))
    run(spark, lake, pipeline, drawn(range(1, 4)), drawn(range(4, 6)))
    savepoint(lake, pipeline, "five", lambda: NOW)
    run(spark, lake, pipeline, drawn(range(6, 9)), drawn(range(9, 11)))
    return lake


@pytest.fixture
def lake(original: Lake, tmp_path: Path) -> Lake:
    """A copy of that lake, whose checkpoint knows that its landing folder was moved."""
    shutil.copytree(original.root, tmp_path / "lake")
    copied = Lake(str(tmp_path / "lake"))
    landing = readings.source.location(original)
    move_files(copied.checkpoint(readings, "log"), landing, landing, readings.source.location(copied))
    return copied


@pytest.mark.long
def test_o2_restored_into_new_tables_it_is_at_five_goes_on_to_ten_and_leaves_the_original_alone(
    spark: SparkSession, original: Lake, tmp_path: Path
) -> None:
    before = {path: path.read_bytes() for path in Path(original.root).rglob("*.json") if "_delta_log" in path.parts}
    assert totals(original) == {"even": 30, "odd": 25}

    second = Lake(str(tmp_path / "second"))
    restored = restore_to(original, pipeline, "five", second)
    assert totals(second) == {"even": 6, "odd": 9}
    assert [batch.number for batch in read_batches(second, readings)] == [1, 0]
    assert restored.waiting == {"readings": 2}

    drain(spark, second, pipeline, now=lambda: NOW)
    assert totals(second) == {"even": 30, "odd": 25}
    for operator, suffix in ((sums, ""), (sums, "state"), (visits, ""), (visits, "state")):
        assert rows(second, operator, suffix) == rows(original, operator, suffix)
    assert broken(spark, second) == []

    # What arrives there from now on is taken once, and the original skips no batch.
    land(readings.source.location(second), drawn(range(11, 13)), name="0004.json")
    drain(spark, second, pipeline, now=lambda: NOW)
    assert totals(second) == {"even": 42, "odd": 36}
    assert {path: path.read_bytes() for path in before} == before
    assert totals(original) == {"even": 30, "odd": 25}
    assert [batch.number for batch in read_batches(original, readings)] == [3, 2, 1, 0]


def test_a_delivery_of_a_restored_lake_waits_until_it_is_told_what_is_meant(
    spark: SparkSession, original: Lake, tmp_path: Path
) -> None:
    second = Lake(str(tmp_path / "second"))
    restore_to(original, pipeline, "five", second)
    drained = drain(spark, second, pipeline, now=lambda: NOW)
    assert "was made of a savepoint" in drained.held["out"] and exported(second) == []
    begin_anew(spark, second, pipeline, out, again=False, now=lambda: NOW)
    # Five were delivered by the original before the savepoint, and five come behind it.
    assert exported(second) == exported(original)[5:]


@pytest.mark.long
def test_a_restore_puts_tables_back_as_a_new_generation_and_steps_on_over_all_that_came_since(
    spark: SparkSession, lake: Lake
) -> None:
    current = Delivery("totals", sums, JsonLines("exports/totals"))
    whole = Pipeline(readings, (sums, visits), deliveries=(current,))
    drain(spark, lake, whole, now=lambda: NOW)
    before = {(each.name, suffix): rows(lake, each, suffix) for each in (sums, visits) for suffix in ("", "state")}
    # Somebody has spoilt the sums with another tool.
    DeltaTable(lake.table(sums, "state")).update({"total": "total + 1000"})
    assert totals(lake)["even"] == 1030

    restored = restore(spark, lake, whole, "five", lambda: NOW)
    assert restored.left_out == ()
    assert {
        (each.name, suffix): rows(lake, each, suffix) for each in (sums, visits) for suffix in ("", "state")
    } == before
    assert [batch.number for batch in read_batches(lake, readings)] == [3, 2, 1, 0]
    assert broken(spark, lake) == []

    # Of what was restored nothing is delivered until it is told what is meant; what arrives comes to the sums.
    with pytest.raises(ChangedDeclaration, match=r"generation 0 of 'sums'.*tidemark redeliver readings totals --go-on"):
        run(spark, lake, whole, drawn(range(11, 13)))
    assert totals(lake) == {"even": 42, "odd": 36}


def test_a_restore_leaves_the_answers_of_an_enrichment_where_they_are(tmp_path: Path) -> None:
    there, asked = Lake(str(tmp_path / "lake")), Pipeline(readings, (squares,))
    create_table(there, squares, "", StructType().add("id", StringType()))
    table = delta.open_table(there.table(squares))
    assert table is not None
    kept = SavedTable("readings/squares", str(table.metadata().id), table.version(), 0)
    Savepoint("early", "readings", NOW, {}, {}, (kept,), {}).write(there, asked)
    restored = restore(cast(Any, None), there, asked, "early")
    assert (restored.left_out, restored.copied) == (("squares",), 0)
    assert delta.version_of(there.table(squares)) == kept.version


def test_a_savepoint_whose_state_is_declared_under_another_name_is_refused_and_names_it(
    spark: SparkSession, lake: Lake
) -> None:
    renamed = replace(sums, state="sum bigint")
    with pytest.raises(ChangedDeclaration, match=r"'sums' is not the one that savepoint 'five' is of: .*total.*sum"):
        restore(spark, lake, Pipeline(readings, (renamed, visits)), "five")
    assert totals(lake) == {"even": 30, "odd": 25}


def test_maintenance_and_state_that_is_cleaned_keep_what_a_savepoint_needs_until_it_is_dropped(
    original: Lake, lake: Lake, tmp_path: Path
) -> None:
    later = NOW + timedelta(days=400)
    DeltaTable(lake.log(readings)).optimize.compact()
    cut = find_savepoint(lake, pipeline, "five")
    assert [each.name for each in savepoints(lake, pipeline)] == ["five"]
    assert cut.batches == {"readings": 1} and cut.through == {"sums": {"readings": 1}, "visits": {"readings": 1}}

    def tidy() -> None:
        maintain(lake, pipeline, retention=timedelta(0), entry_retention=timedelta(0), now=lambda: later)
        for operator in (sums, visits):
            clean_state(lake.table(operator, "state"), later)

    tidy()
    assert kept_bytes(lake, cut) > 0
    second = Lake(str(tmp_path / "second"))
    restore_to(lake, pipeline, "five", second)
    assert totals(second) == {"even": 6, "odd": 9}

    drop_savepoint(lake, pipeline, "five")
    tidy()
    log = next(table for table in cut.tables if table.place == "readings/log")
    with pytest.raises(Exception, match=r"(?i)version|not found|exist|no files"):
        assert not storage.missing_files(DeltaTable(lake.log(readings), log.version)), "a file does not exist"
    with pytest.raises(SavepointError, match=r"has no savepoint 'five' in .*; there are: none"):
        find_savepoint(lake, pipeline, "five")
    assert totals(lake) == totals(original)


def test_a_savepoint_that_has_lost_a_file_and_a_lake_that_is_in_use_are_refused_before_anything_is_copied(
    lake: Lake, tmp_path: Path
) -> None:
    with pytest.raises(SavepointError, match="has streams of pipeline 'readings' already"):
        restore_to(lake, pipeline, "five", lake)
    saved = find_savepoint(lake, pipeline, "five")
    log = DeltaTable(lake.log(readings), next(t.version for t in saved.tables if t.place == "readings/log"))
    Path(lake.log(readings), log.get_add_actions()["path"].to_pylist()[0]).unlink()
    with pytest.raises(SavepointError, match="cannot be restored: of readings/log files are gone"):
        restore_to(lake, pipeline, "five", Lake(str(tmp_path / "second")))
    assert not Path(tmp_path / "second" / "readings").exists()
    with pytest.raises(SavepointError, match="has a savepoint 'five' already"):
        savepoint(lake, pipeline, "five")


def test_tables_that_a_savepoint_needs_are_not_dropped_with_their_view(lake: Lake) -> None:
    without = Pipeline(readings, (visits,))
    with pytest.raises(SavepointError, match="savepoint 'five' of pipeline 'readings' needs these tables"):
        drop(lake, [without], "sums")
    drop_savepoint(lake, pipeline, "five")
    assert {table.name for table in drop(lake, [without], "sums")} == {"sums", "sums_state"}


def test_a_copy_that_died_in_its_midst_cannot_be_opened(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, kills, opened = DeltaTable(lake.log(readings)), 0, 0
    copied = history.copy_files
    while not opened:
        kills += 1
        left = kills

        def dying(source: Any, names: Any, to: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
            copied(source, names, to)

        monkeypatch.setattr(history, "copy_files", dying)
        to = str(tmp_path / str(kills))
        with suppress(KeyboardInterrupt):
            history.copy_table(table, to)
        with suppress(DeltaError, AssertionError):
            opened = delta_rows(to)
    assert opened == 10 and kills > 3


def delta_rows(uri: str) -> int:
    """The rows of the table at `uri`; an error where there is none."""
    there = delta.open_table(uri)
    assert there is not None
    return int(there.to_pyarrow_table().num_rows)
