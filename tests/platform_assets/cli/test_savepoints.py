"""`tidemark savepoint`, `savepoints`, `fork`, `restore`, `show --as-of` and `doctor`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from platform_assets.demo.pipelines.flights import flights, pipeline
from streaming.lake.lake import Lake
from streaming.service.drain import drain
from tests.platform_assets.conftest import Tidemark
from tests.support.departures import CLOSING, FIRST
from tests.support.feeds import land_all


@pytest.mark.long
def test_a_savepoint_is_taken_listed_forked_read_restored_and_dropped(
    spark: SparkSession, lake: Lake, tidemark: Tidemark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, text = tidemark("savepoint flights early")
    assert code == 1 and "there is nothing to save of pipeline 'flights'" in text
    land_all(lake, flights, FIRST)
    drain(spark, lake, pipeline)
    code, text = tidemark("savepoint flights early")
    assert code == 0 and "Savepoint early: batch 0 of flights" in text and "Next: tidemark fork flights early" in text
    code, text = tidemark("savepoints flights")
    assert code == 0 and " early " in text and "Next: tidemark restore flights early" in text

    land_all(lake, flights, CLOSING)
    drain(spark, lake, pipeline)
    code, text = tidemark("show flights first --as-of early")
    assert code == 0 and "no rows" in text
    code, text = tidemark("audit flights --as-of early")
    assert code == 0 and "flights" in text and "BROKEN" not in text
    code, text = tidemark("report on_time_performance --as-of 1")
    assert code == 0 and "on_time_performance as of 1" in text and "Nothing was judged or published" in text
    assert not Path(lake.path("reports")).exists()
    code, text = tidemark("show flights first --as-of yesterday")
    assert code == 1 and "'yesterday' is no batch, no instant" in text and "savepoints are: early" in text

    code, text = tidemark(f"fork flights early --as {tmp_path / 'trial'}")
    assert code == 0 and "begins at batch 0 of flights" in text and "1 file of flights wait" in text
    assert f"Next: TIDEMARK_HOME={tmp_path / 'trial'} tidemark run flights" in text
    code, text = tidemark("restore flights early")
    assert code == 0 and "flights is restored from batch 0 of flights on" in text and "Next: tidemark correct" in text
    code, text = tidemark("doctor flights")
    assert code == 0 and "Nothing is broken. Next: tidemark audit flights" in text

    code, text = tidemark("savepoint flights early --drop")
    assert code == 0 and "is dropped" in text and "Next: tidemark maintain flights" in text
    assert "has no savepoint" in tidemark("savepoints flights")[1]
    assert tidemark("savepoint flights --drop")[0] == 1

    Path(lake.log(flights), "_delta_log", "_last_checkpoint").write_text("{")
    code, text = tidemark("doctor flights")
    assert code == 3 and "checkpoint hint broken" in text and "Next: tidemark doctor flights --fix" in text
    code, text = tidemark("doctor flights --fix")
    assert code == 0 and "healed checkpoint hint broken" in text
    shutil.rmtree(lake.checkpoint(flights, "log"))
    code, text = tidemark("doctor flights --fix")
    assert code == 0 and "healed checkpoint missing" in text
