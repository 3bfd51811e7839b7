"""The labelled hours of `benchmarks.unusual` as a lake has them: the log of a stream, and a view of it."""

from __future__ import annotations

from datetime import datetime

import numpy as np
import pyarrow as pa
from deltalake import write_deltalake

from benchmarks.unusual import Series
from streaming import BoundedOutOfOrderness, Files, Json, Lake, Pipeline, Stream, Tumbling, Usual, Windowed, agg
from streaming.declare.limits import Limits
from streaming.service import HOUR
from streaming.service.progress import Measure
from streaming.service.progress_table import ProgressTable

_INSTANT = pa.timestamp("us", "UTC")

orders = Stream(
    "orders",
    Files("landing/orders"),
    Json("at timestamp, amount double, email string"),
    event_time="at",
    clock=BoundedOutOfOrderness("5 minutes"),
)
by_hour = Windowed("by_hour", orders, Tumbling("1 hour"), {"orders": agg.count(), "takings": agg.sum("amount")})
MEAN, NULLS = Usual("avg(amount)"), Usual("count_if(email is null) / count(*)", least=0.02)
shop = Pipeline(
    orders,
    (by_hour,),
    name="shop",
    limits=Limits(usual={"orders": (Usual(), MEAN, NULLS), "by_hour": (Usual("sum(orders)"),)}),
)


def write(lake: Lake, series: Series, before: datetime) -> None:
    """Write the hours of a series up to an instant: rows of the log that make them up, and a rejected one in each.

    Beside it the results of the view, and a batch of each hour in the table of progress.
    """
    hours = [at for at in series.rows if at < before]
    rows = np.array([int(series.rows[at]) for at in hours])
    nulls = np.round([series.null_share.get(at, 0.0) for at in hours] * rows).astype(int)
    begins = np.array([at.replace(tzinfo=None) for at in hours], "datetime64[us]")
    means = np.array([series.mean.get(at, 0.0) for at in hours])
    within = np.arange(rows.sum()) - np.repeat(np.cumsum(rows) - rows, rows)
    valid = {
        "at": pa.array(np.repeat(begins, rows) + within * np.timedelta64(1, "ms"), _INSTANT),
        "amount": np.repeat(means, rows),
        "email": pa.array(np.full(rows.sum(), "a@b.c"), mask=within < np.repeat(nulls, rows)),
        "_day": np.repeat(begins, rows).astype("datetime64[D]"),
    }
    rejected = {
        "at": pa.array(begins, _INSTANT),
        "amount": np.full(len(hours), 1e9),
        "email": pa.nulls(len(hours), pa.string()),
        "_day": pa.nulls(len(hours), pa.date32()),
    }
    log = pa.concat_tables([pa.table(valid), pa.table(rejected)])
    write_deltalake(lake.log(orders), log, partition_by=["_day"])
    view = {
        "window_start": pa.array(begins, _INSTANT),
        "window_end": pa.array(begins + np.timedelta64(1, "h"), _INSTANT),
        "orders": rows,
        "takings": rows * means,
        "_day": begins.astype("datetime64[D]"),
    }
    write_deltalake(lake.table(by_hour), pa.table(view).filter(pa.array(rows > 0)), partition_by=["_day"])
    with ProgressTable(lake, shop) as progress:
        progress.add([Measure("log", 0, at + HOUR / 2, at + HOUR / 2, int(series.rows[at]), number=0) for at in hours])
