"""`tidemark audit --deliveries`: what was sent against what is there, row by row."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streaming.declare.delivery import Delivery
from streaming.lake.lake import Lake
from streaming.pipelines import flights as declared
from streaming.sinks.files import JsonLines
from tests.platform_assets.conftest import Tidemark
from tests.support.departures import FIRST
from tests.support.feeds import land_all


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
