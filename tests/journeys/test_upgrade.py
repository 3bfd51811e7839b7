"""A lake that an earlier release left is read, goes on, and ends as if this release had made all of it."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from streaming.audit.laws import audit
from streaming.base.errors import FormatError, OperatorError
from streaming.lake.lake import Lake
from streaming.log import head
from streaming.operations.doctor import examine, heal
from streaming.operations.maintenance import maintain
from streaming.operations.savepoint import savepoints
from streaming.operators.runtime import runtime_of
from streaming.tables import delta
from streaming.tables.delta import FORMAT, PROPERTY
from tests.support.old_lake import LAKES, OldLake, unpack
from tests.support.runs import tuples

ARCHIVES = sorted((Path(__file__).parents[1] / "support" / "lakes").glob("*.tar.gz"))


def contents(spark: SparkSession, lake: Lake, kept: OldLake) -> dict[str, list[tuple[object, ...]]]:
    """All that people read of it, and all state, but for when it was written and where it was read from."""
    tables = dict[str, list[tuple[object, ...]]]()
    for operator in (operator for pipeline in kept.pipelines for operator in pipeline.operators):
        for what, read in runtime_of(operator, lake).readable.items():
            # What is not declared, such as updates, is not there.
            with suppress(OperatorError):
                rows = tuples(read(spark).drop("_written_at", "_origin", "_left_origin", "_right_origin"))
                tables[f"{operator.name} {what}"] = sorted(rows, key=repr)
        assert any(tables[name] for name in tables if name.startswith(f"{operator.name} "))
    files = [path for path in Path(lake.root, "exports").rglob("*.json") if "_delivered" not in path.parts]
    lines = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    # A lake of an earlier release has numbered its revisions by the looks of each delivery.
    tables["delivered"] = sorted((str({**line, "_result_id": None, "_revision": None}),) for line in lines)
    assert tables["delivered"]
    return tables


def healed(archive: Path, folder: Path) -> Lake:
    """The lake in an archive, which knows that it lies elsewhere now."""
    assert archive.stat().st_size < 500_000
    lake = unpack(archive, folder)
    for place, pipeline in enumerate(of(archive).pipelines):
        ailments, left = heal(lake, pipeline)
        assert {ailment.kind for ailment in ailments} == ({"lake moved"} if place == 0 else set())
        assert [ailment for ailment in left if not ailment.note] == []
        assert [saved.name for saved in savepoints(lake, pipeline)] == ["before"]
    return lake


def of(archive: Path) -> OldLake:
    return LAKES[archive.name.removesuffix(".tar.gz")]


@pytest.mark.sampled
@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.gz"))
def test_a_lake_of_an_earlier_release_goes_on_and_every_law_holds(
    spark: SparkSession, tmp_path: Path, archive: Path
) -> None:
    old, kept = healed(archive, tmp_path), of(archive)
    before = contents(spark, old, kept)
    kept.go_on(spark, old)
    after = contents(spark, old, kept)
    # What was delivered stays and more comes, from every operator.
    assert set(before["delivered"]) < set(after["delivered"])
    assert [name for name in before if name.endswith(" first") and after[name] == before[name]] == []
    for pipeline in kept.pipelines:
        assert [finding for finding in audit(spark, old, pipeline) if not finding.holds] == []
        assert [ailment for ailment in examine(old, pipeline) if not ailment.note] == []


@pytest.mark.long
@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.gz"))
def test_a_lake_of_an_earlier_release_goes_on_with_other_partitions_as_if_this_one_had_made_it(
    spark: SparkSession, tmp_path: Path, archive: Path
) -> None:
    old, new, kept = healed(archive, tmp_path), Lake(str(tmp_path / "new")), of(archive)
    kept.fill(spark, new)
    assert contents(spark, old, kept) == contents(spark, new, kept)

    partitions = spark.conf.get("spark.sql.shuffle.partitions")
    assert partitions is not None
    spark.conf.set("spark.sql.shuffle.partitions", "5")
    try:
        kept.go_on(spark, old)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", partitions)
    kept.go_on(spark, new)
    assert contents(spark, old, kept) == contents(spark, new, kept)


def test_a_lake_of_an_earlier_release_has_tables_of_the_first_format_and_one_that_is_newer_is_refused(
    tmp_path: Path,
) -> None:
    archive = ARCHIVES[0]
    old, kept = unpack(archive, tmp_path), LAKES[archive.name.removesuffix(".tar.gz")]
    stream = kept.pipelines[0].stream
    table = delta.opened(old.log(stream))
    assert PROPERTY not in table.metadata().configuration and head(old, stream) is not None
    table.alter.set_table_properties({PROPERTY: str(FORMAT + 1)}, raise_if_not_exists=False)
    with pytest.raises(FormatError) as refused:
        head(old, stream)
    assert refused.value.table == old.log(stream)


@pytest.mark.sampled
@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.gz"))
def test_after_maintenance_arrow_finds_every_row_of_every_table_of_an_earlier_release(
    tmp_path: Path, archive: Path
) -> None:
    lake = healed(archive, tmp_path)
    for pipeline in of(archive).pipelines:
        maintain(lake, pipeline)
    tables = {path.parent for path in Path(lake.root).rglob("_delta_log") if "_savepoints" not in path.parts}
    assert len(tables) > 5
    for place in tables:
        table = DeltaTable(place)
        rows, dataset = table.to_pyarrow_table(), table.to_pyarrow_dataset()
        comparable = [each.name for each in rows.schema if not pa.types.is_nested(each.type)]
        for name in comparable:
            wanted = rows.num_rows - rows[name].null_count
            assert dataset.count_rows(filter=pc.field(name).isin(rows[name].unique().drop_null())) == wanted, place


def test_there_is_a_lake_of_an_earlier_release_with_operators_of_every_kind() -> None:
    assert {archive.name.removesuffix(".tar.gz") for archive in ARCHIVES} == {*LAKES}
