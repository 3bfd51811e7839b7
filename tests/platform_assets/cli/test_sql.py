"""`tidemark sql`: queries over all tables of the lake, one, many from a pipe, or at a prompt."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from platform_assets.cli import context, main
from platform_assets.cli.sql import completer_of
from platform_assets.demo.pipelines.flights import pipeline
from streaming.lake import Lake
from streaming.reading import LakeDatabase
from tests.platform_assets.conftest import Typed
from tests.support.written_lake import write_flights


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A lake, in a process in which nobody may start Spark."""
    monkeypatch.setattr(context, "start_quietly", lambda **_: pytest.fail("Spark was started"))
    return write_flights(Lake(str(tmp_path / "lake")))


def rows(typed: Typed, query: str) -> list[dict[str, object]]:
    code, out, err = typed(f'sql "{query}" --json')
    assert code == 0, err
    return [json.loads(line) for line in out.splitlines()]


def test_tables_of_the_lake_are_named_by_pipeline_and_view(typed: Typed) -> None:
    assert rows(typed, "select sum(flights) as n from flights.departures_by_origin") == [{"n": 12}]
    assert rows(typed, "select sum(flights) as n from flights.departures_by_origin.first") == [{"n": 6}]
    joined = "flights.departures_by_origin c join FLIGHTS.departures_by_origin.first f using (origin, window_start)"
    assert rows(typed, f"select origin from {joined} where c.flights <> f.flights") == [{"origin": "LGA"}]
    assert rows(typed, "with few as (select * from flights.log limit 2) select count(*) as n from few") == [{"n": 2}]
    assert rows(typed, "select count(*) as n from flights.rejected") == [{"n": 0}]


def test_first_results_are_never_taken_for_what_is_current(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "lake" / "flights" / "departures_by_origin_current").rename(tmp_path / "elsewhere")
    (tmp_path / "lake" / "flights" / "log").rename(tmp_path / "lake" / "flights" / "departures_by_origin_corrections")
    code, _, err = typed("sql 'select sum(flights) as n from flights.departures_by_origin'")
    assert code == 1
    assert "flights.departures_by_origin is in no table" in err
    assert "tidemark show flights current --view departures_by_origin" in err
    assert rows(typed, "select sum(flights) as n from flights.departures_by_origin.first") == [{"n": 6}]


def test_what_was_published_of_a_report_is_a_table(typed: Typed, lake: Lake) -> None:
    for flights in (3, 4):
        written = pa.table({"carrier": ["UA"], "flights": [flights]})
        write_deltalake(lake.report("on_time"), written, mode="overwrite")
    # The second version is of a run that died before it was published.
    Path(lake.report("punctuality.json")).write_text(json.dumps({"versions": {"on_time": 0}}))
    Path(lake.report("other.json")).write_text("{")
    assert rows(typed, "select flights from reports.on_time where carrier = 'UA'") == [{"flights": 3}]
    code, _, err = typed("sql 'select * from reports.other'")
    assert code == 1 and "reports.on_time" in err


def test_rows_are_printed_as_show_prints_them(typed: Typed) -> None:
    query = "select origin, window_start, mean_dep_delay from flights.departures_by_origin order by 1"
    code, out, _ = typed(f"sql '{query}' --limit 2")
    assert code == 0 and "EWR" in out and "2013-01-01 10:00:00" in out and "... and more; --limit 20" in out
    code, out, _ = typed(f"sql '{query}' --csv")
    assert out.splitlines() == [
        "origin,window_start,mean_dep_delay",
        "EWR,2013-01-01T10:00:00.000000Z,-1.0",
        "JFK,2013-01-01T10:00:00.000000Z,",
        "LGA,2013-01-01T10:00:00.000000Z,NaN",
    ]
    assert typed(f"sql '{query} limit 0' --csv")[1] == "origin,window_start,mean_dep_delay\n"
    assert typed("sql 'select 1' --csv --json")[0] == 2


def test_queries_come_through_a_pipe(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("select 1 as a,\n 2 as b;\n\nselect 3 as c"))
    assert typed("sql --json")[1].splitlines() == ['{"a":1,"b":2}', '{"c":3}']
    monkeypatch.setattr("sys.stdin", io.StringIO("select 1 as a;\n\\q\nselect 3 as c;"))
    assert typed("sql --json")[1].splitlines() == ['{"a":1}']


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("select * from nonesuch", "Tables are: flights.departures_by_origin, "),
        ("select nonesuch from flights.log", "the query cannot be computed: Binder Error"),
        ("selec", "the query cannot be computed: Parser Error"),
        ("select * from flights.departures_by_origin.corrections", "is in no table of the lake"),
    ],
)
def test_what_cannot_be_computed_is_one_paragraph(typed: Typed, query: str, reason: str) -> None:
    code, _, err = typed(f'sql "{query}"')
    assert (code, len(err.splitlines())) == (1, 1) and "ReadError" in err and reason in err


def test_the_prompt_completes_names_of_tables_and_columns(lake: Lake) -> None:
    completer = completer_of(LakeDatabase(lake, [pipeline]))
    for typed, completed in {"select on_ti": "on_time_share", "select 1 from flights.rej": "flights.rejected"}.items():
        assert [each.text for each in completer.get_completions(Document(typed), CompleteEvent())] == [completed]


def test_the_prompt_goes_on_after_a_mistake_and_ends_when_it_is_told(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["tidemark", "sql"])
    monkeypatch.setenv("TIDEMARK_HOME", lake.root)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        keys.send_text("select nonesuch;\rselect count(*) as n\rfrom flights.log;\r\\q\r")
        with pytest.raises(SystemExit) as left:
            main()
    out = capsys.readouterr().out
    assert left.value.code == 0 and "Binder Error" in out and "n" in out.splitlines()[-4]
