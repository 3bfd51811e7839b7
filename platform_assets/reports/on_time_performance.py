"""The punctuality of New York's departures, and how much of it the first results did not know yet."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from platform_assets.reports.bias_chart import draw
from platform_assets.reports.report import Report, Section
from platform_assets.reports.sources import Sources
from quality.suites import flights as suites
from streaming.base import WINDOW
from streaming.feeds.nycflights import airlines
from streaming.log import valid
from streaming.pipelines.flights import departures_by_origin, pipeline
from streaming.views import assign

NAME = "on_time_performance"
CARRIERS = "on_time_performance_carriers"


def by_origin(sources: Sources) -> DataFrame:
    """Per UTC day and origin, first results and current side by side, over the windows that are closed.

    day, origin · {first,current}_flights, _cancelled (counts), _mean_dep_delay (minutes), _on_time_share (0 to 1), the
    last two of the flights that left and null where none did · late_rows (rows that came after their window was
    closed) · complete (the whole day is closed).
    """
    view = departures_by_origin
    first = _daily(sources.first(view), "first")
    now = _daily(sources.current(view), "current")
    rows = now.join(first, ["day", "origin"], "left")
    corrections = sources.corrections(view)
    if corrections is None:
        rows = rows.withColumn("late_rows", F.lit(0).cast("bigint"))
    else:
        late = corrections.groupBy(F.col("_day").alias("day"), "origin").agg(F.sum("_late_rows").alias("late_rows"))
        rows = rows.join(late, ["day", "origin"], "left")
    counts = ("first_flights", "first_cancelled", "late_rows")
    return (
        rows.fillna(0, list(counts))
        .select(
            "day",
            "origin",
            *(f"{which}_{measure}" for measure in _MEASURES for which in ("first", "current")),
            "late_rows",
            F.col("day").isin(*sources.finished_days).alias("complete"),
        )
        .orderBy("day", "origin")
    )


def by_carrier(sources: Sources) -> DataFrame:
    """Per carrier over the same closed windows, current only, most flights first.

    carrier (code) · name (the code where it is unknown) · flights, cancelled (counts) · mean_dep_delay (minutes) ·
    on_time_share (0 to 1).
    """
    view = departures_by_origin
    closed = sources.current(view).select(*view.identity)
    departures = (
        assign(valid(sources.log), view)
        .withColumns({"window_start": F.col(f"{WINDOW}.start"), "window_end": F.col(f"{WINDOW}.end")})
        .join(closed, list(view.identity), "left_semi")
    )
    names = sources.spark.createDataFrame(airlines(), "carrier string, name string")
    per_carrier = departures.groupBy("carrier").agg(
        *(aggregate.column().alias(name) for name, aggregate in view.aggregates.items())
    )
    return (
        per_carrier.join(F.broadcast(names), "carrier", "left")
        .select("carrier", F.coalesce("name", "carrier").alias("name"), *view.aggregates)
        .orderBy(F.desc("flights"), "carrier")
    )


_MEASURES = ("flights", "cancelled", "mean_dep_delay", "on_time_share")
_DECIMALS = 4


def _daily(hourly: DataFrame, which: str) -> DataFrame:
    left = F.col("flights") - F.col("cancelled")

    def of_those_that_left(mean: str) -> Column:
        # A mean of hourly means would give a quiet hour the weight of a busy one.
        return F.try_divide(F.sum(F.col(mean) * left), F.sum(left))

    return hourly.groupBy(F.col("_day").alias("day"), "origin").agg(
        F.sum("flights").alias(f"{which}_flights"),
        F.sum("cancelled").alias(f"{which}_cancelled"),
        of_those_that_left("mean_dep_delay").alias(f"{which}_mean_dep_delay"),
        of_those_that_left("on_time_share").alias(f"{which}_on_time_share"),
    )


report = Report(
    pipeline=pipeline,
    description="Punctuality of New York's departures per day and airport: first results beside corrected ones.",
    sections=(
        Section(
            NAME,
            "Per UTC day and airport, first results beside current ones.",
            by_origin,
            lambda sources: suites.on_time_performance(sources.finished_days),
            decimals={f"{which}_{mean}": _DECIMALS for which in ("first", "current") for mean in _MEASURES[2:]},
        ),
        Section(
            CARRIERS,
            "Per airline, current results.",
            by_carrier,
            lambda sources: suites.on_time_performance_carriers(),
            decimals=dict.fromkeys(_MEASURES[2:], _DECIMALS),
        ),
    ),
    chart=lambda tables: draw(tables[NAME]),
)
