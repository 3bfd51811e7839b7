"""The commands as they are typed: what they print, what comes next, and how they exit."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from platform_assets.demo.pipelines.flights import departures_by_origin, pipeline
from streaming.lake.lake import Lake
from tests.platform_assets.conftest import Tidemark
from tests.support.departures import BROKEN, CLOSING, FIRST, LATE_ON_1, SECOND
from tests.support.feeds import land, land_all
from tests.support.runs import run

# A command takes the session that runs already.
pytestmark = pytest.mark.usefixtures("spark")


@pytest.mark.long
def test_each_command_names_the_next_and_a_broken_law_exits_with_3(
    spark: SparkSession, lake: Lake, tidemark: Tidemark
) -> None:
    run(spark, lake, pipeline, FIRST, SECOND, [*CLOSING, *BROKEN], LATE_ON_1)

    code, output = tidemark("run flights --end-of-input")
    assert (code, "Next: tidemark correct flights" in output) == (0, True)
    code, output = tidemark("show flights late")
    assert (code, output.count("2013-01-01 10:30:00")) == (0, 1)
    code, output = tidemark("show flights rejected")
    assert (code, "json: " in output) == (0, True)
    code, output = tidemark("repair flights --preview")
    assert (code, "1 rejected row: 0 would pass, 1 would stay rejected. Nothing was written" in output) == (0, True)
    code, output = tidemark("repair flights")
    assert (code, "0 repaired, 1 stay rejected" in output, "Next: tidemark show flights rejected" in output) == (
        0,
        True,
        True,
    )
    code, output = tidemark("lateness flights --delay 3days --complete 0.5")
    assert (code, "15 min (declared)" in output, "3 d" in output, "Next: tidemark lateness flights" in output) == (
        0,
        True,
        True,
        True,
    )
    assert Path(lake.report("lateness_departures_by_origin.png")).read_bytes().startswith(b"\x89PNG")
    code, output = tidemark("show flights clock")
    # The late row was stamped with the watermark of CLOSING; the end of input closed the last windows.
    stamped = "source 2013-01-04 09:45:00 2013-01-04 09:45:00 2013-01-01 10:30:00 1"
    assert (code, stamped in output) == (0, True), output
    assert output.count("heartbeat") == 1
    code, output = tidemark("show flights corrections")
    assert (code, "OperatorError" in output, "Next" in output) == (1, True, False)
    code, output = tidemark("correct flights")
    assert (code, "2013-01-01: 1 window corrected" in output) == (0, True)
    code, output = tidemark("correct flights")
    assert (code, "no day has late pairs that are not corrected yet" in output) == (0, True)
    code, output = tidemark("show flights corrections")
    assert (code, "Next: tidemark audit flights" in output) == (0, True)
    for table in ("log", "first", "current"):
        code, output = tidemark(f"show flights {table} --limit 1")
        assert (code, "and more; --limit 10" in output) == (0, True)
    code, output = tidemark("audit flights")
    assert (code, "every law holds" in output) == (0, True)

    land(pipeline.stream.source.location(lake), FIRST, name="0000.json")
    land_all(lake, pipeline.stream, [{**LATE_ON_1[0], "gate": "B2"}])
    code, output = tidemark("run flights")
    assert (code, "Fields that nobody declared: gate (1 rows)." in output) == (0, True)
    assert "delivered again under the same name, after it was read: 0000.json. A file is read once" in output
    code, output = tidemark("audit flights")
    assert (code, "0000.json was ingested with" in output, "as a new file under a new name" in output) == (
        3,
        True,
        True,
    )

    damaged = DeltaTable(lake.first(departures_by_origin))
    damaged.alter.set_table_properties({"delta.appendOnly": "false"})
    damaged.delete("origin = 'EWR'")
    code, output = tidemark("audit flights")
    assert (code, "a law is broken" in output) == (3, True)


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (
            "show flights",
            "OperatorError: view 'departures_by_origin' is not built yet at '{lake}/flights/departures_by_",
        ),
        ("show flights log", "LogError: stream 'flights' has no event log at '{lake}/flights/log' yet; run"),
        ("show flights first", "OperatorError: view 'departures_by_origin' is not built yet at '{lake}/flights/"),
        ("show flights corrections", "has no corrections at '{lake}/flights/departures_by_origin_corrections' yet"),
        ("show flights updates", "has no updates at '{lake}/flights/departures_by_origin_updates'"),
        ("show flights open", "has no table of open windows at '{lake}/flights/departures_by_origin_open'"),
        ("audit flights", "LogError: stream 'flights' has no event log at '{lake}/flights/log' yet; run"),
        ("correct flights", "LogError: stream 'flights' has no event log at '{lake}/flights/log' yet; run"),
        ("repair flights", "LogError: stream 'flights' has no event log at '{lake}/flights/log' yet; run"),
        ("lateness flights", "LogError: stream 'flights' has no event log at '{lake}/flights/log' yet; run"),
        ("lateness flights --view nonesuch", "has no view 'nonesuch'"),
        ("maintain flights", "LogError: stream 'flights' has no event log at '{lake}/flights/log' yet; run"),
        ("show flights clock", "LogError: stream 'flights' has no event log at '{lake}/flights/log' yet; run"),
        ("run flights", "SourceError:"),
        ("run nonesuch", "nonesuch"),
        ("report on_time_performance", "NotBuiltYet: pipeline 'flights' has no table 'flights/departures_by_origin'"),
        ("report nonesuch", "UnknownReport:"),
        ("feed nonesuch", "nonesuch"),
    ],
)
def test_an_error_is_one_sentence_without_a_trace_that_names_the_lake(
    command: str, error: str, lake: Lake, tidemark: Tidemark
) -> None:
    code, output = tidemark(command)

    assert code == 1
    assert error.replace("{lake}", lake.root) in output
    assert "Traceback" not in output


def test_a_new_pipeline_is_written_and_nothing_is_overwritten(tidemark: Tidemark, lake: Lake) -> None:
    assert tidemark(f"new stream clicks --folder {lake.root}")[0] == 0
    code, output = tidemark(f"new stream clicks --folder {lake.root}")
    assert (code, "clicks" in output, "Traceback" in output) == (1, True, False)
