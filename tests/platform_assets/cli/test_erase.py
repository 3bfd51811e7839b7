"""`tidemark erase`: what it would do, what it did, and what it leaves to people."""

from __future__ import annotations

from pyspark.sql import SparkSession

from platform_assets.demo.pipelines.flights import flights, pipeline
from platform_assets.events.counts import count_rejected
from streaming.lake.lake import Lake
from streaming.log.read import read_log, rejected
from streaming.operations.savepoint import savepoint
from tests.platform_assets.conftest import Tidemark
from tests.support.departures import BROKEN, FIRST, SECOND
from tests.support.runs import run


def test_an_erasure_is_foretold_refused_while_savepoints_pin_and_proved(
    spark: SparkSession, lake: Lake, tidemark: Tidemark
) -> None:
    run(spark, lake, pipeline, [*FIRST, *BROKEN, '{"origin": "EWR"'], SECOND, end_of_input=True)
    savepoint(lake, pipeline, "early")

    code, text = tidemark("erase flights --key origin=EWR --preview")
    assert code == 0 and "flights/log" in text and "Computed anew without them: departures_by_origin." in text
    assert "Next: tidemark erase flights --key origin=EWR --with-savepoints" in text
    code, text = tidemark("erase flights --key origin=EWR")
    assert code == 1 and "keep old versions: early" in text and "--with-savepoints" in text

    code, text = tidemark("erase flights --key origin=EWR --with-savepoints")
    assert code == 0 and "none is left" in text and "Next: tidemark audit flights" in text
    assert "published versions of report on_time_performance; the source of flights" in " ".join(text.split())
    counted = count_rejected(spark, lake, flights)["dagster/row_count"]
    assert counted == rejected(read_log(spark, lake, flights)).count()
    code, text = tidemark("audit flights")
    assert code == 0 and "erased" in text
    code, text = tidemark("show flights log --where \"origin = 'EWR'\"")
    assert code == 0 and "no rows" in text

    code, text = tidemark("erase flights --key passenger=x")
    assert code == 1 and "no stream of pipeline 'flights' has a column 'passenger'" in text
