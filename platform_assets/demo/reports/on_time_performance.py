"""The punctuality of New York's departures, and how much of it the first results did not know yet."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from platform_assets.demo.feeds.flights import airlines
from platform_assets.demo.pipelines.flights import departures_by_origin, pipeline
from platform_assets.demo.suites import flights as suites
from platform_assets.reports.report import Report, Section
from platform_assets.reports.sources import Sources
from streaming.base import WINDOW, needs
from streaming.log import valid
from streaming.views import assign

if TYPE_CHECKING:
    from matplotlib.figure import Figure


NAME = "on_time_performance"
CARRIERS = "on_time_performance_carriers"
_FIRST, _CURRENT, _INK = "#9aa5b1", "#d9480f", "#1f2933"
_LABELLED_DAYS = 16


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


@dataclass(frozen=True)
class Bias:
    """Mean departure delay (minutes, of the flights that left) in first and current results; null where none left."""

    first: float | None
    current: float | None


def bias(rows: list[dict[str, Any]]) -> Bias:
    """The two means over `rows` of the report, each row weighted by the flights that left."""
    return Bias(_mean(rows, "first"), _mean(rows, "current"))


def draw(table: pa.Table) -> Figure:
    """Two bars per day, first result and current; the title states the finding over all days."""
    needs("matplotlib", "the chart of the first results")
    from matplotlib.dates import date2num
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    rows = table.to_pylist()
    days = sorted({row["day"] for row in rows})
    daily = [bias([row for row in rows if row["day"] == day]) for day in days]
    figure = Figure(figsize=(12, 6.75), dpi=120, layout=ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.15))
    axes = figure.add_subplot()
    positions = [float(date2num(day)) for day in days]
    for offset, colour, label, means in (
        (-0.2, _FIRST, "first result: what was known when the hour was closed", [entry.first for entry in daily]),
        (0.2, _CURRENT, "current: with the flights that came late", [entry.current for entry in daily]),
    ):
        heights = [mean or 0.0 for mean in means]
        bars = axes.bar([position + offset for position in positions], heights, 0.4, color=colour, label=label)
        if len(days) <= _LABELLED_DAYS:
            texts = ["" if mean is None else f"{mean:.1f}" for mean in means]
            axes.bar_label(bars, texts, fontsize=12, color=_INK, padding=2)
    axes.axhline(0, color=_INK, linewidth=0.8)
    axes.set_ylabel("mean departure delay, minutes", fontsize=13, color=_INK)
    axes.tick_params(labelsize=12, colors=_INK)
    _name_days(axes, days, positions)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=2, frameon=False, fontsize=13)
    figure.suptitle(_finding(bias(rows)), fontsize=21, fontweight="bold", color=_INK)
    axes.set_title(_subtitle(rows, days), fontsize=12.5, color=_INK, pad=14)
    return figure


def _mean(rows: list[dict[str, Any]], which: str) -> float | None:
    weights = [
        (row[f"{which}_mean_dep_delay"], row[f"{which}_flights"] - row[f"{which}_cancelled"])
        for row in rows
        if row[f"{which}_mean_dep_delay"] is not None
    ]
    left = sum(weight for _, weight in weights)
    return sum(mean * weight for mean, weight in weights) / left if left else None


def _name_days(axes: Any, days: list[date], positions: list[float]) -> None:
    if len(days) <= _LABELLED_DAYS:
        axes.set_xticks(positions, [f"{day:%a} {day.day} {day:%b}" for day in days])
    else:
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        locator = AutoDateLocator()
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))


def _finding(means: Bias) -> str:
    if means.first is None or means.current is None:
        return "New York departures: no flight left"
    if f"{means.first:.1f}" == f"{means.current:.1f}":
        return f"First results had it right: {means.current:.1f} minutes mean delay"
    return f"First results said {means.first:.1f} minutes mean delay, the truth is {means.current:.1f}"


def _subtitle(rows: list[dict[str, Any]], days: list[date]) -> str:
    flights, late = sum(row["current_flights"] for row in rows), sum(row["late_rows"] for row in rows)
    return (
        f"{flights:,} departures from New York, {days[0]} to {days[-1]} (UTC); "
        f"{late:,} ({late / flights:.1%}) were told after their hour had closed"
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
