"""The current results of an operator, told of by whoever has just written the tables that they are a read of."""

from __future__ import annotations

from typing import Any

import dagster as dg
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from platform_assets.keys import current_keys
from streaming import Lake
from streaming.declare import CURRENT, Operator
from streaming.operators import runtime_of
from streaming.tables import delta


def report_current(context: Any, spark: SparkSession, lake: Lake, operator: Operator) -> None:
    """Tell of the operator's current results, where they are an asset of their own and there are any yet."""
    if operator.overlaid and delta.exists(lake.table(operator)):
        (key,) = current_keys(operator)
        context.log_event(dg.AssetMaterialization(key, metadata=count_current(spark, lake, operator)))


def count_current(spark: SparkSession, lake: Lake, operator: Operator) -> dict[str, Any]:
    """Rows and columns of the current results, and how many of them stand for a first result."""
    rows = runtime_of(operator, lake).readable[CURRENT](spark)
    corrected = F.count_if("_corrected") if "_corrected" in rows.columns else F.lit(None)
    counted = rows.agg(F.count(F.lit(1)).alias("rows"), corrected.alias("corrected")).first()
    assert counted is not None
    columns = [dg.TableColumn(field.name, field.dataType.simpleString()) for field in rows.schema.fields]
    return {
        "dagster/row_count": counted["rows"],
        "dagster/column_schema": dg.TableSchema(columns=columns),
        **({} if counted["corrected"] is None else {"corrected_rows": counted["corrected"]}),
    }
