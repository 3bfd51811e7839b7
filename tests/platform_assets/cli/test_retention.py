"""Old days go with maintenance, whoever runs it, and commands say so."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from platform_assets.demo.pipelines import flights as declared
from platform_assets.pipeline.maintenance import maintenance_job
from platform_assets.resources import default_resources
from streaming.lake.lake import Lake
from streaming.tables import days_of
from tests.platform_assets.conftest import Tidemark, Typed
from tests.support.departures import CLOSING, FIRST, SECOND, THIRD, departure
from tests.support.feeds import land_all


def retention_in(typed: Typed) -> dict[str, Any]:
    code, out, _ = typed("status flights --json")
    assert code == 0
    (retention,) = json.loads(out)["retention"]
    return dict(retention)


@pytest.mark.long
def test_maintenance_drops_old_days_and_says_what_stays(
    spark: SparkSession, lake: Lake, tidemark: Tidemark, typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = replace(declared.flights, retention="1 day")
    view = replace(declared.departures_by_origin, of=stream)
    pipeline = replace(declared.pipeline, streams=(stream,), operators=(view,))
    monkeypatch.setattr(declared, "pipeline", pipeline)
    for batch in ([*FIRST, *SECOND, *THIRD, *CLOSING], [departure("EWR", "06T10:00")], [departure("JFK", "07T10:00")]):
        land_all(lake, stream, batch)
        assert tidemark("run flights")[0] == 0

    code, text = tidemark("status flights")
    assert code == 0 and "retention of flights: 1 day; rows of days before 2013-01-05 are rejected" in text
    assert "the whole log is there; `tidemark maintain flights` drops up to 3 days before 2013-01-04" in text
    reason = "view 'departures_by_origin' may still need rows from 2013-01-04 on"
    assert retention_in(typed) == {
        "pipeline": "flights",
        "stream": "flights",
        "retention": "1 day",
        "rejected_before": "2013-01-05",
        "kept_from": None,
        "dropped_rows": 0,
        "droppable_days": 3,
        "keeps": reason,
    }
    code, text = tidemark("maintain flights")
    done = f"flights: 9 rows of 3 days before 2013-01-04 dropped from the log; what follows stays: {reason}"
    assert code == 0 and f"flights: dropping 3 days before 2013-01-04 {done}" in text
    code, text = tidemark("maintain flights")
    assert code == 0 and f"flights: nothing to drop; what follows stays: {reason}" in text
    code, text = tidemark("status flights")
    assert code == 0 and f"before 2013-01-04 are dropped, results stay; the log is kept from then on: {reason}" in text
    retention = retention_in(typed)
    assert (retention["kept_from"], retention["dropped_rows"], retention["droppable_days"]) == ("2013-01-04", 9, 0)
    code, text = tidemark("show flights log")
    assert code == 0 and "9 rows of days before 2013-01-04 are dropped, results stay" in text
    code, text = tidemark("audit flights")
    assert code == 0 and "9 rows of days before were dropped, views keep theirs" in text
    code, text = tidemark("rebuild departures_by_origin")
    assert code == 1 and "cannot be built anew" in text and "Nothing was changed." in text

    land_all(lake, stream, [departure("JFK", "08T10:00")])
    assert tidemark("run flights")[0] == 0
    assert maintenance_job(pipeline).execute_in_process(resources=default_resources(lake.root)).success
    assert sorted(str(day) for day in days_of(lake.log(stream))) == [
        "2013-01-06",
        "2013-01-07",
        "2013-01-08",
    ]
