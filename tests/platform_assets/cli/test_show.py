"""`tidemark show` and `--json`: what people see at 80 columns, and what programs read from stdout."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from docs.examples import temperature_jumps
from platform_assets.cli import show
from platform_assets.cli.context import console
from platform_assets.cli.selection import Selection
from platform_assets.demo.pipelines.flights import pipeline
from streaming.lake.lake import Lake
from streaming.reading import stored_rows
from tests.platform_assets.conftest import Typed
from tests.support.departures import BROKEN, CLOSING, FIRST, LATE_ON_1, SECOND
from tests.support.feeds import readings
from tests.support.runs import run
from tests.support.written_lake import write_flights


@pytest.fixture(scope="module")
def flights_lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """Three days of flights, a rejected row, and a late one that is not corrected yet."""
    lake = Lake(str(tmp_path_factory.mktemp("flights") / "lake"))
    run(spark, lake, pipeline, FIRST, SECOND, [*CLOSING, *BROKEN], LATE_ON_1, end_of_input=True)
    yield lake


@pytest.fixture
def lake(flights_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Lake:
    monkeypatch.setattr(console, "width", 80)
    return flights_lake


def document(typed: Typed, command: str, expected: int = 0) -> Any:
    """What a command prints, if that is one JSON document and nothing else."""
    code, out, err = typed(command)
    assert code == expected, err
    return json.loads(out)


def test_rows_that_are_too_wide_for_the_terminal_are_blocks_and_fewer_columns_make_a_table(typed: Typed) -> None:
    code, out, _ = typed("show flights --limit 2")
    lines = out.splitlines()
    assert (code, lines[0]) == (0, "flights/departures_by_origin: current")
    assert [line for line in lines if line.startswith("row ")] == [f"row {number} ".ljust(80, "─") for number in (1, 2)]
    assert "window_start    2013-01-01 10:00:00" in out
    # What is to be copied stays on one line.
    assert max(len(line) for line in lines if not line.startswith("--columns origin,window_start")) <= 80
    assert "... and more; --limit 20 shows more of them." in lines

    code, out, _ = typed("show flights --columns origin,window_start,flights --where 'flights > 0' --sort origin")
    lines = out.splitlines()
    heads = next(line for line in lines if "window_start" in line)
    assert (code, heads.split(), max(map(len, lines)) <= 80) == (0, ["origin", "window_start", "flights"], True)
    assert "row 1" not in out and "Next: tidemark audit flights" in out


def test_what_is_of_the_stream_is_titled_by_the_stream(typed: Typed) -> None:
    assert typed("show flights clock --limit 1")[1].startswith("flights: clock\n")
    assert typed("show flights rejected --where false")[1].startswith("flights: rejected: no rows\n")


def test_json_lines_have_every_row_and_csv_reads_back_the_same(typed: Typed) -> None:
    code, out, _ = typed("show flights first --json --sort 'window_start,origin'")
    rows = [json.loads(line) for line in out.splitlines()]
    assert (code, len(rows)) == (0, 7)
    assert {"origin": "EWR", "window_start": "2013-01-01T10:00:00.000000Z", "flights": 1}.items() <= rows[0].items()

    code, out, _ = typed("show flights first --csv --sort 'window_start,origin'")
    cells = list(csv.DictReader(io.StringIO(out)))
    assert (code, len(cells), list(cells[0])) == (0, 7, list(rows[0]))
    assert [(cell["window_start"], cell["flights"]) for cell in cells] == [
        (row["window_start"], str(row["flights"])) for row in rows
    ]


@pytest.mark.sampled
@pytest.mark.parametrize("form", ["--json", "--csv", "--limit 3"])
@pytest.mark.parametrize("what", ["current", "first", "log", "log --as-of 1", "first --as-of 1", "rejected", "clock"])
def test_rows_are_the_same_whether_spark_reads_them_or_nobody_does(
    what: str, form: str, typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as here:
        here.setattr(show, "_show_computed", lambda *_: pytest.fail("Spark was asked"))
        without_spark = typed(f"show flights {what} {form}")
    monkeypatch.setattr(show, "_show_stored", lambda *_: False)
    assert without_spark == typed(f"show flights {what} {form}")


def test_the_table_of_what_is_current_is_shown_where_there_is_one(tmp_path: Path) -> None:
    rows = stored_rows(write_flights(Lake(str(tmp_path))), pipeline, pipeline.operator())
    assert rows is not None
    chosen = Selection(columns="flights,_corrected", where="origin = 'LGA'").of_stored(rows)
    assert chosen.table().to_pylist() == [{"flights": 7, "_corrected": True}]


def test_a_field_of_a_column_is_a_column_named_after_it(typed: Typed) -> None:
    (row,) = [
        json.loads(line)
        for line in typed("show flights rejected --json --columns _batch,_origin.path,_batch")[1].splitlines()
    ]
    assert list(row) == ["_batch", "_origin.path"] and row["_origin.path"].endswith(".json")


def test_a_payload_is_text_and_nested_values_are_json_in_both(typed: Typed) -> None:
    (row,) = [json.loads(line) for line in typed("show flights rejected --json")[1].splitlines()]
    (cell,) = csv.DictReader(io.StringIO(typed("show flights rejected --csv")[1]))
    assert row["_raw"] == cell["_raw"] == "{"
    assert row["_rejected"] == json.loads(cell["_rejected"])
    assert row["_origin"] == json.loads(cell["_origin"])


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("--where 'nonesuch > 1'", "--where 'nonesuch > 1' cannot be used: "),
        ("--where 'flights >'", "--where 'flights >' cannot be used: "),
        ("--where 'flights'", "--where 'flights' cannot be used: "),
        ("--where 'origin > 1'", "--where 'origin > 1' cannot be used: "),
        ("--columns origin,nonesuch", "--columns 'origin,nonesuch' cannot be used: "),
        ("--sort nonesuch", "--sort 'nonesuch' cannot be used: "),
        ("--sort 'flights down'", "--sort 'flights down' cannot be used: "),
    ],
)
def test_a_bad_choice_of_rows_is_one_paragraph_that_names_the_columns(options: str, reason: str, typed: Typed) -> None:
    code, out, err = typed(f"show flights {options} --json")
    assert (code, len(err.splitlines())) == (1, 1), err
    assert json.loads(out)["error"]["code"] == "platform.selection"
    assert f"BadSelection: {reason}" in err and "Columns are: origin, window_start, window_end, " in err


def test_json_and_csv_at_once_are_a_mistake_of_typing(typed: Typed) -> None:
    assert typed("show flights --json --csv")[0] == 2
    assert typed("status --json --watch")[0] == 2


def test_audit_lateness_status_and_metrics_are_documents(typed: Typed, lake: Lake) -> None:
    audited = document(typed, "audit flights --json")
    assert (audited["lake"], audited["pipeline"], audited["holds"]) == (lake.root, "flights", True)
    assert {"law": "conservation", "subject": "flights", "broken": 0, "holds": True}.items() <= audited["findings"][
        0
    ].items()

    late = document(typed, "lateness flights --delay 3days --complete 0.5 --json")
    assert (late["view"], late["declared_delay_seconds"]) == ("departures_by_origin", 900.0)
    assert late["explanation"].startswith("The recommended delay is ")
    three_days = next(outcome for outcome in late["outcomes"] if outcome["delay_seconds"] == 3 * 86_400)
    assert (three_days["late_pairs"], three_days["pairs"]) == (0, late["overall"]["pairs"])
    assert Path(late["chart"]).is_file()

    status = document(typed, "status --json")
    assert [(each["pipeline"], each["state"], each["process"]) for each in status["pipelines"]] == [
        ("flights", "stopped", None)
    ]
    assert (status["left_tables"], status["broken_modules"]) == ([], [])
    metrics = document(typed, "metrics --json")["metrics"]
    assert {"name": "tidemark_stream_up", "labels": {"pipeline": "flights"}, "value": 0.0}.items() <= metrics[0].items()


def test_days_that_changed_are_a_document_and_a_table_with_the_revision_to_go_on_from(typed: Typed, lake: Lake) -> None:
    changed = document(typed, "changed departures_by_origin --json")
    of = {"lake": lake.root, "pipeline": "flights", "view": "departures_by_origin", "since": -1, "revision": 0}
    assert {name: changed[name] for name in of} == of
    first = {entry["_day"]: entry["added"] for entry in changed["parts"]}
    assert (changed["by"], sum(first.values())) == (["_day"], len(document_rows(typed, "show flights --json")))
    assert {entry["taken_back"] for entry in changed["parts"]} == {0}

    code, out, _ = typed("changed flights/departures_by_origin --by origin,_day --limit 1")
    assert code == 0 and "Next: tidemark changed flights/departures_by_origin --since 0" in out
    assert "flights/departures_by_origin, revision 0: " in out and " keys changed since revision -1" in out
    refused = document(typed, "changed departures_by_origin --since 7 --json", expected=1)["error"]
    assert "there is no revision 7 of 'departures_by_origin'; there are those up to 0" in refused["text"]


def test_a_number_is_explained_as_a_document_and_for_people_with_its_rows(typed: Typed, lake: Lake) -> None:
    rows = document_rows(typed, "show flights --json --where 'flights > 0' --limit 1")
    key = f"origin={rows[0]['origin']} window_start={rows[0]['window_start']}"
    answer = document(typed, f"why departures_by_origin {key} --json")
    assert (answer["lake"], answer["pipeline"], answer["operator"]) == (lake.root, "flights", "departures_by_origin")
    assert (answer["agrees"], answer["published"][0]["flights"]) == (True, rows[0]["flights"])
    counting = [row for row in answer["inputs"] if row["counts"]]
    assert len(counting) == rows[0]["flights"] and {row["values"]["origin"] for row in counting} == {rows[0]["origin"]}
    assert 0 < answer["files"]["read"] < answer["files"]["of"]

    code, out, _ = typed(f"why flights/departures_by_origin {key} --first")
    told = " ".join(out.split())
    assert code == 0 and "recomputed from exactly these rows, it is the same" in told
    assert "that it counts" in told and "what decided, and what was read" in told and "Next: tidemark" in told
    refused = document(typed, "why departures_by_origin origin=XYZ --json", expected=1)["error"]
    assert "no result of view 'departures_by_origin' has origin=XYZ" in refused["text"]
    assert refused["facts"]["choices"]
    assert typed("why departures_by_origin JFK")[0] == 2
    assert typed("why departures_by_origin origin=JFK --first --current")[0] == 2
    assert typed("why on_time_performance origin=JFK --first --as-of 1")[0] == 2


def document_rows(typed: Typed, command: str) -> list[Any]:
    """The rows that a command prints, one on each line."""
    code, out, err = typed(command)
    assert code == 0, err
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.long
def test_a_report_is_a_document_whether_its_gate_opens_or_not(
    spark: SparkSession, typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = document(typed, "report on_time_performance --json", expected=4)
    assert (refused["published"], {reason["why"] for reason in refused["reasons"]}) == (
        False,
        {"failed", "uncorrected"},
    )

    clean = Lake(str(tmp_path / "clean"))
    run(spark, clean, pipeline, FIRST, SECOND, end_of_input=True)
    monkeypatch.setenv("TIDEMARK_HOME", clean.root)
    published = document(typed, "report on_time_performance --json")
    rows = published["sections"]["on_time_performance"]
    assert (published["published"], {row["day"] for row in rows}) == (True, {"2013-01-01", "2013-01-02"})
    assert Path(published["files"]["on_time_performance"][0]).is_file()


@pytest.mark.parametrize("key", ["EWR", "origin=EWR", "origin=EWR,_corrected=false"])
def test_rows_of_one_key_are_shown(key: str, typed: Typed) -> None:
    code, out, err = typed(f"show flights --key {key} --json")
    assert code == 0, err
    rows = [json.loads(row) for row in out.splitlines()]
    assert {row["origin"] for row in rows} == {"EWR"}


def test_the_state_of_a_key_is_shown(
    spark: SparkSession, typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jumping = Lake(str(tmp_path / "jumping"))
    run(spark, jumping, temperature_jumps.pipeline, readings("a@1=20, b@2=30, a@3=21"))
    monkeypatch.setenv("TIDEMARK_HOME", jumping.root)
    monkeypatch.setenv("TIDEMARK_PIPELINES", "docs.examples")
    rows = [json.loads(row) for row in typed("show jump_readings state --json")[1].splitlines()]
    assert [(row["id"], row["previous"]) for row in rows] == [("a", 21.0), ("b", 30.0)]
    (row,) = [json.loads(row) for row in typed("show jump_readings state --view jumps --key a --json")[1].splitlines()]
    assert row == rows[0] and dict(row["_timers"]) == {"forget": "2026-01-01T01:00:03.000000Z"}


def test_a_value_of_a_key_is_no_sql_and_a_column_that_there_is_not_is_named(typed: Typed) -> None:
    assert json.loads(typed("""show flights --key "x' or '1'='1" --json""")[1])["error"]["code"] == "platform.selection"
    code, _, err = typed("show flights --key nonesuch=1 --json")
    assert code == 1 and "BadSelection: --key 'nonesuch=1' cannot be used: " in err
