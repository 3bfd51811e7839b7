"""An analyst reads corrected revenue with DuckDB alone, and everything else that tells it tells the same."""

from __future__ import annotations

import json
import sys
from decimal import Decimal
from pathlib import Path
from subprocess import run as run_process
from typing import Any

import dagster as dg
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from platform_assets.keys import report_key
from platform_assets.pipeline.builder import pipeline_definitions
from platform_assets.resources import default_resources
from quality import Suite, unique
from streaming import BoundedOutOfOrderness, Files, Json, Lake, Pipeline, Rule, Stream, Tumbling, Windowed, agg
from streaming.changes import note_together, publish
from streaming.operations.redeliver import deliver_current
from streaming.reading import LakeDatabase
from streaming.sinks.postgres import Postgres
from tests.support.instants import NOW
from tests.support.postgres import rows
from tests.support.runs import run
from tidemark import Delivery, Report, Section, Sources
from tidemark.testing import correct

PROJECT = Path(__file__).parents[2]
NOTEBOOK = PROJECT / "docs" / "notebooks" / "analyst.ipynb"
DAY = "2026-01-01"

orders = Stream(
    name="orders",
    source=Files("landing/orders"),
    format=Json("customer string not null, placed_at timestamp not null, amount decimal(10, 2) comment 'Paid [EUR]'"),
    event_time="placed_at",
    clock=BoundedOutOfOrderness("10 minutes"),
    rules=(Rule("amount_positive", "amount > 0"),),
)
orders_by_hour = Windowed(
    "orders_by_hour", orders, Tumbling("1 hour"), {"orders": agg.count(), "revenue": agg.sum("amount")}
)


one_row_a_day = Suite((unique("one_row_a_day", ("day",)),))


def by_day(sources: Sources) -> DataFrame:
    hours = sources.current(orders_by_hour).groupBy(F.col("_day").alias("day"))
    return hours.agg(F.sum("revenue").alias("revenue"))


def order(time: str, amount: float) -> dict[str, Any]:
    return {"customer": "ann", "placed_at": f"{DAY}T{time}:00Z", "amount": amount}


IN_TIME = [order("05:05", 12.50), order("05:40", 7.25), order("06:10", 20.00), order("09:00", 1.00)]
"""09:00 closes the hours before it."""
LATE = [order("05:59", 30.25), order("10:30", 2.00)]
"""Of an hour that is closed by then, and one that closes the hour of 09:00."""
REVENUE = Decimal("71.00")
"""By hand, of the hours that are closed: 12.50 + 7.25 + 30.25 + 20.00 + 1.00."""

WITHOUT_US = """
import json, sys

class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"tidemark", "streaming", "quality", "platform_assets", "pyspark", "pyarrow"}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Refused())
names = {}
for cell in json.loads(sys.stdin.read())["cells"]:
    if cell["cell_type"] == "code":
        exec("".join(cell["source"]), names)
print([[str(day), str(revenue)] for day, revenue in names["revenue"]])
"""


def of_the_notebook(lake: Lake) -> Decimal:
    """Revenue as the notebook computes it, in a process that can import neither Tidemark nor Spark nor PyArrow."""
    command = [sys.executable, "-I", "-c", WITHOUT_US]
    done = run_process(
        command, input=NOTEBOOK.read_text(), env={"LAKE": lake.root}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    ((day, revenue),) = json.loads(done.stdout.splitlines()[-1].replace("'", '"'))
    assert day == DAY
    return Decimal(revenue)


def of_sql(lake: Lake, table: str, pipeline: Pipeline) -> Decimal:
    (row,) = LakeDatabase(lake, [pipeline]).table(f"select sum(revenue) as revenue from {table}").to_pylist()
    return Decimal(row["revenue"])


@pytest.mark.long
def test_corrected_revenue_is_one_number_whoever_reads_it(spark: SparkSession, lake: Lake, postgres: str) -> None:
    delivered = Delivery("revenue_by_hour", orders_by_hour, Postgres("revenue", connection=postgres), "current")
    pipeline = Pipeline(orders, (orders_by_hour,), deliveries=(delivered,))
    report = Report(
        pipeline=pipeline,
        description="What each day brought.",
        sections=(
            Section("revenue", "Revenue per UTC day.", by_day, lambda sources: Suite((unique("a_day", ("day",)),))),
        ),
    )
    run(spark, lake, pipeline, IN_TIME)
    run(spark, lake, pipeline, LATE)
    assert of_the_notebook(lake) == REVENUE - Decimal("30.25")
    correct(spark, lake, orders_by_hour, lambda: NOW)
    publish(spark, lake, orders_by_hour)
    note_together(lake, pipeline)
    deliver_current(spark, lake, pipeline, lambda: NOW)
    platform = dg.Definitions.merge(
        pipeline_definitions(pipeline, [report]),
        dg.Definitions(resources=default_resources(lake.root), executor=dg.in_process_executor),
    )
    with dg.DagsterInstance.ephemeral() as instance:
        assert platform.resolve_job_def("revenue").execute_in_process(instance=instance).success
        event = instance.get_latest_materialization_event(report_key("revenue"))
    assert event is not None and event.asset_materialization is not None
    told = {name: entry.value for name, entry in event.asset_materialization.metadata.items()}

    assert of_the_notebook(lake) == REVENUE
    assert of_sql(lake, "orders.orders_by_hour", pipeline) == REVENUE
    assert of_sql(lake, "reports.revenue", pipeline) == REVENUE
    assert rows(postgres, "select sum(revenue) from revenue") == [(REVENUE,)]
    published = (
        DeltaTable(str(told["dagster/uri"]), version=int(str(told["delta_version"]))).to_pyarrow_table().to_pylist()
    )
    assert [row["revenue"] for row in published] == [REVENUE]
