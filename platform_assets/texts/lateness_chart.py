"""The chart of a lateness profile: how complete first results are, and how long they wait, by the clock's delay."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator, PercentFormatter

from platform_assets.texts.lateness import length
from streaming.base import interval
from streaming.lateness import Profile

_SHARE, _WAIT, _INK, _PALE = "#d9480f", "#1864ab", "#1f2933", "#9aa5b1"
_TICKS = (0, 1, 10, 60, 600, 3_600, 21_600, 86_400, 604_800, 2_592_000)


def draw(profile: Profile) -> Figure:
    """Share of rows on time over the delay as a step line, with the mean wait of results below it."""
    figure = Figure(figsize=(12, 7.5), dpi=120, layout=ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.15))
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    needed = profile.needed
    seconds = needed.millis / 1000
    shares = np.cumsum(needed.pairs) / needed.total
    longest = max(
        float(seconds[-1]) if len(seconds) else 0.0, *(o.delay.total_seconds() for o in profile.outcomes), 1.0
    )
    above.step(
        [0.0, *seconds, longest * 1.5], [_first(seconds, shares), *shares, shares[-1] if len(shares) else 0.0],
        where="post", color=_SHARE, linewidth=2.5,
    )  # fmt: skip
    above.axhline(profile.complete, color=_PALE, linewidth=1, linestyle="--")
    above.set_ylabel("rows on time", fontsize=13, color=_INK)
    above.yaxis.set_major_formatter(PercentFormatter(1.0))
    waits = [
        (o.delay.total_seconds(), o.mean_wait.total_seconds()) for o in profile.outcomes if o.mean_wait is not None
    ]
    if waits:
        below.plot(*zip(*waits, strict=True), color=_WAIT, linewidth=2.5, marker="o")
    below.set_ylabel("results wait, mean", fontsize=13, color=_INK)
    below.set_yscale("symlog", linthresh=1)
    below.yaxis.set_major_locator(
        FixedLocator([tick for tick in _TICKS if tick <= 2 * max([1.0, *(w for _, w in waits)])])
    )
    below.yaxis.set_minor_locator(NullLocator())
    below.yaxis.set_major_formatter(FuncFormatter(_say))
    below.set_xlabel("delay of the clock", fontsize=13, color=_INK)
    below.set_xscale("symlog", linthresh=1)
    below.set_xlim(0, longest * 1.5)
    below.xaxis.set_major_locator(FixedLocator([tick for tick in _TICKS if tick <= longest * 1.5]))
    below.xaxis.set_minor_locator(NullLocator())
    below.xaxis.set_major_formatter(FuncFormatter(_say))
    _mark(above, below, profile)
    for axes in (above, below):
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=12, colors=_INK)
    figure.suptitle(_finding(profile), fontsize=19, fontweight="bold", color=_INK)
    above.set_title(
        f"{profile.view}: {needed.total:,} rows in windows, replayed over the clock of the log",
        fontsize=12.5, color=_INK, pad=14,
    )  # fmt: skip
    return figure


def _first(seconds: np.ndarray, shares: np.ndarray) -> float:
    return float(shares[0]) if len(seconds) and seconds[0] == 0 else 0.0


def _mark(above: Axes, below: Axes, profile: Profile) -> None:
    marks = {interval(profile.declared): "declared"}
    if profile.recommended is not None:
        delay = interval(profile.recommended)
        marks[delay] = f"{marks[delay]}, recommended" if delay in marks else "recommended"
    for height, (delay, name) in zip((0.08, 0.2), sorted(marks.items()), strict=False):
        for axes in (above, below):
            axes.axvline(delay.total_seconds(), color=_INK, linewidth=1.2, linestyle=":")
        above.annotate(
            f" {length(delay)}: {name}", (delay.total_seconds(), height), xycoords=("data", "axes fraction"),
            fontsize=12, color=_INK,
        )  # fmt: skip


def _finding(profile: Profile) -> str:
    wanted = f"{profile.complete * 100:g} % of rows on time"
    if profile.recommended is None:
        return f"No delay brings {wanted}"
    if interval(profile.recommended) == interval(profile.declared):
        return f"The declared delay of {length(interval(profile.declared))} brings {wanted}"
    return f"A delay of {length(interval(profile.recommended))} brings {wanted}"


def _say(seconds: float, _: int | None) -> str:
    return length(timedelta(seconds=float(seconds)))
