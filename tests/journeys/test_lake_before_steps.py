"""A lake from the time when views were streaming queries: it is known for what it is, and its log goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streaming import Lake, Pipeline, log
from streaming.audit.laws import audit
from streaming.base.errors import OperatorError
from streaming.operations.doctor import heal
from streaming.operations.rebuild import rebuild
from tests.support.feeds import readings
from tests.support.instants import NOW
from tests.support.old_lake import NEW, OLD, by_ten, kept, unpack, visits
from tests.support.runs import read_current, run, tuples
from tidemark import testing

ARCHIVE = Path(__file__).parents[1] / "support" / "lakes" / "before_steps" / "streaming_views.tar.gz"
"""Made by the last version with such views, of the rows of OLD, its late one corrected."""

both = Pipeline(kept, (by_ten, visits))


@pytest.mark.long
def test_its_views_are_built_anew_from_its_log_which_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    old, new = unpack(ARCHIVE, tmp_path), Lake(str(tmp_path / "new"))
    healed, _ = heal(old, both)
    assert "lake moved" in {ailment.kind for ailment in healed}
    there = len(log.read_batches(old, kept))

    with pytest.raises(
        OperatorError, match=r"view 'kept_by_ten' are of an older version of Tidemark.*`tidemark rebuild kept_by_ten`"
    ):
        run(spark, old, both, readings(NEW[0]))
    assert len(log.read_batches(old, kept)) == there + 1, "the log goes on meanwhile"

    for view in both.views:
        rebuild(spark, old, both, view, now=lambda: NOW)
    run(spark, old, both, readings(NEW[1]), end_of_input=True)

    run(spark, new, both, *map(readings, (*OLD, *NEW)), end_of_input=True)
    for view in both.views:
        for lake in (old, new):
            testing.correct(spark, lake, view, now=lambda: NOW)
        assert tuples(read_current(spark, old, view)) == tuples(read_current(spark, new, view)) != []
    assert [finding for finding in audit(spark, old, both) if finding.broken] == []
