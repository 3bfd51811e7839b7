"""A lake that an earlier release left is read, goes on, and ends as if this release had made all of it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streaming.audit.laws import audit
from streaming.base.errors import ViewError
from streaming.lake.lake import Lake
from streaming.operations.doctor import examine, heal
from streaming.operations.savepoints import savepoints
from streaming.operators.runtime import runtime_of
from tests.support.feeds import readings
from tests.support.instants import NOW
from tests.support.old_lake import NEW, fill, pipeline, unpack
from tests.support.runs import run, tuples
from tidemark import testing

ARCHIVES = sorted((Path(__file__).parents[1] / "support" / "lakes").glob("*.tar.gz"))


def contents(spark: SparkSession, lake: Lake) -> dict[str, list[tuple[object, ...]]]:
    """All that people read of it, and all state, but for the moments at which it was written."""
    tables = dict[str, list[tuple[object, ...]]]()
    for operator in pipeline.operators:
        for what, read in runtime_of(operator, lake).readable.items():
            # What is not declared, such as updates, is not there.
            with suppress(ViewError):
                rows = tuples(read(spark).drop("_written_at"))
                tables[f"{operator.name} {what}"] = sorted(rows, key=repr)
        assert tables[f"{operator.name} current"]
    delivered = sorted(Path(lake.root, "exports").rglob("*.jsonl*"))
    tables["delivered"] = sorted((line,) for path in delivered for line in path.read_text().splitlines())
    return tables


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.removesuffix(".tar.gz"))
def test_a_lake_of_an_earlier_release_goes_on_with_other_partitions_as_if_this_one_had_made_it(
    spark: SparkSession, tmp_path: Path, archive: Path
) -> None:
    assert archive.stat().st_size < 500_000
    old, new = unpack(archive, tmp_path), Lake(str(tmp_path / "new"))
    fill(spark, new)
    healed, left = heal(old, pipeline)
    assert [ailment.kind for ailment in healed] == ["lake moved"]
    assert [ailment for ailment in left if not ailment.note] == []
    assert [saved.name for saved in savepoints(old, pipeline)] == ["before"]
    assert contents(spark, old) == contents(spark, new)

    partitions = spark.conf.get("spark.sql.shuffle.partitions")
    assert partitions is not None
    spark.conf.set("spark.sql.shuffle.partitions", "5")
    try:
        run(spark, old, pipeline, *map(readings, NEW), end_of_input=True)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", partitions)
    run(spark, new, pipeline, *map(readings, NEW), end_of_input=True)
    for lake in (old, new):
        for view in pipeline.operators[:2]:
            testing.correct(spark, lake, view, now=lambda: NOW)
    assert contents(spark, old) == contents(spark, new)
    assert [finding for finding in audit(spark, old, pipeline) if not finding.holds] == []
    assert [ailment for ailment in examine(old, pipeline) if not ailment.note] == []


def test_there_is_a_lake_of_an_earlier_release() -> None:
    assert ARCHIVES
