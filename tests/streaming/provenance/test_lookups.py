"""Answers of dimensions, looked up again in the version that was read for them, as long as it can be read."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from streaming import DimensionLookup, Enriched, Lake, Pipeline, Why, why
from streaming.provenance.lookups import _answered_again
from tests.streaming.keyed.test_pinned_histories import CUSTOMERS, SEGMENTS, VISITS, customer, run, visit


def shops(folder: Path, **cities: str) -> str:
    """A new version of a table with the city of each customer."""
    table = pa.table({"id": [*cities], "city": [*cities.values()]})
    write_deltalake(str(folder / "shops"), table, mode="overwrite")
    return str(folder / "shops")


class Broken(DimensionLookup):
    """A lookup with a fault in its code."""

    def rows_of(self, table: DeltaTable, columns: Sequence[str]) -> pa.Table:
        raise KeyError("of our own")


@dataclass(frozen=True)
class Story:
    """A lake, and the enrichments of its visits by name."""

    lake: Lake
    pipeline: Pipeline

    def why(self, spark: SparkSession, of: str, lake: Lake | None = None) -> Why:
        return why(self.pipeline, self.pipeline.operator(of), {"number": 1}, lake=lake or self.lake, spark=spark)

    def spoilt(self, folder: Path, of: str, **wrong: str) -> Lake:
        """The same lake elsewhere, with another answer."""
        shutil.copytree(self.lake.root, folder / of)
        lake = Lake(str(folder / of))
        answers = DeltaTable(lake.table(self.pipeline.operator(of)))
        answers.alter.set_table_properties({"delta.appendOnly": "false"})
        answers.update(predicate="number = 1", new_values={**wrong})
        return lake


@pytest.fixture(scope="module")
def story(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Story:
    """```
    asked      visit 1: she is in Bonn, her segment is new
    then       she is in Ulm, and was gold at the time of the visit; the shops that are `lost` keep no old version
    ```
    """
    folder, other = tmp_path_factory.mktemp("shop"), tmp_path_factory.mktemp("lost")
    there, lost = shops(folder, a="Bonn"), shops(other, a="Bonn")
    by: dict[str, Any] = {"on": {"customer": "id"}, "columns": ("city",)}
    city, named = {"city": "string"}, {"city": "string", "version": "bigint"}
    of_history = DimensionLookup(SEGMENTS, {"customer": "id"}, ("segment",), at="at", version_as="version")
    enrichments = (
        Enriched("known", VISITS, of_history, {"segment": "string", "version": "bigint"}, timeout="30 seconds"),
        Enriched("named", VISITS, DimensionLookup(there, **by, version_as="version"), named),
        Enriched("pinned", VISITS, DimensionLookup(there, **by, version=0), city),
        Enriched("unnamed", VISITS, DimensionLookup(there, **by), city),
        Enriched("lost", VISITS, DimensionLookup(lost, **by, version_as="version"), named),
    )
    pipeline = Pipeline(name="shop", streams=(VISITS, CUSTOMERS), operators=(*enrichments, SEGMENTS))
    told = Story(Lake(str(folder / "lake")), pipeline)
    run(spark, told.lake, pipeline, customers=[customer(1, 10, "new")], visits=[visit(1, 20)])
    shops(folder, a="Ulm")
    shops(other, a="Ulm")
    DeltaTable(lost).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    run(spark, told.lake, pipeline, customers=[customer(2, 15, "gold")], visits=[visit(2, 90)])
    return told


def test_an_error_of_our_own_is_not_told_as_a_version_that_is_gone(tmp_path: Path) -> None:
    by = DimensionLookup(shops(tmp_path, a="Bonn"), {"customer": "id"}, ("city",), version=0)
    enriched = Enriched("pinned", VISITS, by, {"city": "string"})
    stored, lake = [{"_error": None, "city": "Bonn"}], Lake(str(tmp_path / "lake"))
    assert list(_answered_again(enriched, lake, pa.table({"customer": ["a"]}), stored).rows) == [{"city": "Bonn"}]
    broken = replace(enriched, call=Broken(by.uri, by.on, by.columns, by.version))
    with pytest.raises(KeyError, match="of our own"):
        _answered_again(broken, lake, pa.table({"customer": ["a"]}), stored)
    gone = replace(enriched, call=replace(by, version=7))
    assert "version 7 of" in _answered_again(gone, lake, pa.table({"customer": ["a"]}), stored).how


@pytest.mark.parametrize(
    ("of", "column", "answer", "other"),
    [("named", "city", "Bonn", "Ulm"), ("pinned", "city", "Bonn", "Ulm"), ("known", "segment", "new", "gold")],
)
def test_an_answer_is_looked_up_again_in_the_version_that_was_read_for_it(
    spark: SparkSession, story: Story, tmp_path: Path, of: str, column: str, answer: str, other: str
) -> None:
    told = story.why(spark, of)
    assert (told.agrees, told.recomputed[0][column]) == (True, answer)
    assert "looked up again in version " in told.notes[0] and told.files.read >= 2
    spoilt = story.why(spark, of, story.spoilt(tmp_path, of, **{column: other}))
    assert (spoilt.agrees, spoilt.holds) == (False, False)
    assert spoilt.said.endswith(f"{column} is {other} and should be {answer}")


@pytest.mark.parametrize(
    ("of", "says"),
    [
        ("unnamed", "nobody has written down which version of"),
        ("lost", "cannot be read any more"),
    ],
)
def test_an_answer_of_a_version_that_nobody_knows_or_can_read_is_as_it_is_stored_and_it_says_so(
    spark: SparkSession, story: Story, of: str, says: str
) -> None:
    told = story.why(spark, of)
    assert (told.agrees, told.recomputed[0]["city"]) == (True, "Bonn")
    assert "taken as it is stored" in told.notes[0] and says in told.notes[0]
