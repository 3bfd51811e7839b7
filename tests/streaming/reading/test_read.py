"""`tidemark.read`: rows of the lake in whichever form is asked for, without Spark."""

from __future__ import annotations

import sys
from pathlib import Path
from subprocess import run

import duckdb
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

import tidemark
from platform_assets.demo.pipelines.flights import departures_by_origin, pipeline
from streaming.base import DeclarationError, ReadError, T
from streaming.lake import Lake
from streaming.tables import delta
from tests.support.written_lake import write_flights

PROJECT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return write_flights(Lake(str(tmp_path_factory.mktemp("written"))))


def test_what_is_current_comes_in_every_form(written: Lake) -> None:
    rows = tidemark.read("flights", "departures_by_origin", lake=written)
    assert rows.arrow().column("flights").to_pylist() == [2, 3, 7]
    assert rows.arrow().column("_corrected").to_pylist() == [False, False, True]
    assert rows.columns == (*departures_by_origin.columns, "_day", "_corrected")
    assert rows.pandas()["flights"].sum() == rows.polars()["flights"].sum() == 12
    assert rows.duckdb().filter("flights > 2").fetchall()[0][0] == "JFK"
    assert polars.DataFrame(rows).height == pa.table(rows).num_rows == len(rows) == 3


def test_rows_and_columns_are_chosen(written: Lake) -> None:
    rows = tidemark.read(
        pipeline, what="first", where="flights < 3", columns=["origin", "flights"], sort=["flights desc"], lake=written
    )
    assert rows.arrow().to_pylist() == [{"origin": "EWR", "flights": 2}, {"origin": "LGA", "flights": 1}]
    assert len(tidemark.read(pipeline, what="log", limit=2, lake=written)) == 2


def test_a_rejected_row_that_was_repaired_is_rejected_no_more(written: Lake) -> None:
    assert len(tidemark.read("flights", what="rejected", lake=written)) == 0
    assert len(tidemark.read("flights", what="rejected", as_of=None, where="_batch = 0", lake=written)) == 0


def test_without_a_table_of_what_is_current_first_results_are_until_something_is_corrected(tmp_path: Path) -> None:
    lake = write_flights(Lake(str(tmp_path)), current=False)
    assert tidemark.read("flights", lake=lake).arrow().column("flights").to_pylist() == [2, 3, 1]
    (tmp_path / "flights" / "departures_by_origin").rename(tmp_path / "flights" / "departures_by_origin_corrections")
    with pytest.raises(ReadError, match=r"no table of the lake .* spark=tidemark.start_session\(\)"):
        tidemark.read("flights", lake=lake)


def test_a_notebook_shows_the_first_rows(written: Lake) -> None:
    html = tidemark.read("flights", columns=["origin", "flights"], lake=written)._repr_html_()
    assert "<p>flights/departures_by_origin: current: 3 rows</p>" in html
    assert '<tr><td>LGA</td><td style="text-align: right">7</td></tr>' in html


def test_with_a_session_the_rows_are_a_frame_of_it(written: Lake, spark: SparkSession) -> None:
    frame = tidemark.read(
        "flights", what="log", where="_batch >= 0", sort=["flight desc"], columns=["flight"], limit=1, spark=spark,
        lake=written,
    )  # fmt: skip
    assert [row["flight"] for row in frame.collect()] == [3]


def test_what_is_not_there_is_told_with_what_is(written: Lake) -> None:
    with pytest.raises(DeclarationError, match="it has: current, first, late, "):
        tidemark.read("flights", what="lates", lake=written)
    with pytest.raises(ReadError, match=r"no column 'nonesuch'.* has: origin, window_start"):
        tidemark.read("flights", where="nonesuch > 1", lake=written)
    with pytest.raises(ReadError, match=r"only Spark can tell what .*UPPER.* means"):
        tidemark.read("flights", where="upper(origin) = 'EWR'", lake=written)
    with pytest.raises(ReadError, match="Run `tidemark run flights` if nothing is there yet"):
        tidemark.read("flights", what="late", lake=written)
    with pytest.raises(DeclarationError):
        tidemark.read("flightss", lake=written)


def test_it_loads_no_spark(written: Lake) -> None:
    code = "import sys, tidemark; tidemark.read('flights').arrow(); print({'pyspark', 'dagster'} & set(sys.modules))"
    environment = {"TIDEMARK_HOME": written.root, "PYTHONPATH": str(PROJECT)}
    done = run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "set()"


def test_other_engines_read_the_tables_by_themselves(written: Lake) -> None:
    from deltalake import DeltaTable, QueryBuilder

    table = DeltaTable(written.path("flights", "departures_by_origin"))
    assert (table.protocol().min_reader_version, table.protocol().min_writer_version) == (1, 2)
    assert duckdb.from_arrow(table.to_pyarrow_dataset()).sum("flights").fetchall() == [(6,)]
    assert polars.read_delta(table.table_uri)["flights"].sum() == 6
    by_datafusion = QueryBuilder().register("t", table).execute("select sum(flights) as flights from t")
    assert pa.table(by_datafusion.read_all()).to_pylist() == [{"flights": 6}]


def test_a_filter_finds_rows_of_columns_without_bounds(tmp_path: Path) -> None:
    """Only bounds of `number` are kept of the file, as of most columns of the lake's tables none are."""
    from deltalake import DeltaTable, QueryBuilder

    uri = str(tmp_path / "table")
    rows = pa.table({"number": pa.array([1, 2], pa.int64()), "reason": ["first", "correction"]})
    schema = T.StructType([T.StructField("number", T.LongType()), T.StructField("reason", T.StringType())])
    delta.create(uri, schema, append_only=False, description="bounds of one column")
    delta.stage_rows(uri, rows, schema, statistics=("number",)).commit({})
    by_datafusion = QueryBuilder().register("t", DeltaTable(uri)).execute("select * from t where reason = 'correction'")
    assert pa.table(by_datafusion.read_all())["number"].to_pylist() == [2]
    everything = QueryBuilder().register("t", DeltaTable(uri)).execute("select * from t")
    by_duckdb = duckdb.from_arrow(pa.table(everything.read_all())).filter("reason = 'correction'")
    assert [row[0] for row in by_duckdb.fetchall()] == [2]
    corrected, by_arrow = polars.col("reason") == "correction", pc.field("reason") == "correction"
    assert polars.scan_delta(uri).filter(corrected).collect()["number"].to_list() == [2]
    dataset = DeltaTable(uri).to_pyarrow_dataset()
    assert dataset.to_table(filter=by_arrow)["number"].to_pylist() == [2]
    told = [("reason", "=", "correction")]
    assert DeltaTable(uri).to_pyarrow_table(filters=told)["number"].to_pylist() == [2]
    assert polars.scan_delta(uri, use_pyarrow=True).filter(corrected).collect()["number"].to_list() == [2]
    assert duckdb.from_arrow(dataset).filter("reason = 'correction'").fetchall() == [(2, "correction")]
