"""The chart of `on_time_performance`: how far the first results are from the truth, day by day."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streaming.base import needs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FIRST, _CURRENT, _INK = "#9aa5b1", "#d9480f", "#1f2933"
_LABELLED_DAYS = 16


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
