"""`tidemark audit`: what was sent against what is there, row by row, and tables that have lost files."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from platform_assets.demo.pipelines import flights as declared
from streaming.declare.delivery import Delivery
from streaming.lake.lake import Lake
from streaming.sinks.files import JsonLines
from tests.platform_assets.conftest import Tidemark
from tests.support.departures import FIRST
from tests.support.feeds import land_all


@pytest.mark.long
def test_a_changed_file_breaks_the_law_only_where_contents_are_asked_for(
    spark: SparkSession, lake: Lake, tidemark: Tidemark, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, text = tidemark("audit flights --deliveries")
    assert code == 2 and "flights declares no delivery" in text

    lines = Delivery("lines", declared.flights, JsonLines("out"), select=("origin",))
    monkeypatch.setattr(declared, "pipeline", replace(declared.pipeline, deliveries=(lines,)))
    land_all(lake, declared.flights, FIRST)
    assert tidemark("run flights")[0] == 0
    code, text = tidemark("audit flights --deliveries")
    assert code == 0 and "contents sent = contents of the target, by checksum" in text
    assert "conservation" not in text

    (path,) = Path(lake.root, "out").glob("2013-*/*.json")
    path.write_text(path.read_text().replace("JFK", "SFO"))
    code, text = tidemark("audit flights --deliveries")
    assert code == 3 and "not as sent: 1 folder of out, such as 2013-01-01." in text
    assert tidemark("audit flights")[0] == 0


@pytest.mark.sampled
@pytest.mark.parametrize("damage", [Path.unlink, lambda path: os.truncate(path, 10)], ids=["removed", "cut off"])
def test_a_table_that_has_lost_a_file_is_no_defect_of_tidemark_and_the_doctor_is_named(
    spark: SparkSession, lake: Lake, tidemark: Tidemark, damage: Callable[[Path], None]
) -> None:
    land_all(lake, declared.flights, FIRST)
    assert tidemark("run flights --end-of-input")[0] == 0
    uri = lake.first(declared.departures_by_origin)
    lost = Path(uri, DeltaTable(uri).get_add_actions()["path"].to_pylist()[0])
    damage(lost)
    code, text = tidemark("audit flights")
    assert (code, "A file that the command reads is gone or damaged" in text, lost.name in text) == (1, True, True)
    assert "`tidemark doctor NAME` names the table" in text and "defect" not in text
