"""A lateness profile in words: cells of tables, lengths of time as people say them."""

from __future__ import annotations

from datetime import timedelta

from streaming.lateness import Outcome, Spread

SPREADS = ("rows in windows", "half", "90 %", "99 %", "all")
OUTCOMES = ("delay", "on time", "late", "results wait, mean", "longest", "open windows, mean", "most")
_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def spread_row(spread: Spread, name: str | None = None) -> tuple[str, ...]:
    """The cells of one spread, under its name and `SPREADS`."""
    delays = (spread.p50, spread.p90, spread.p99, spread.greatest)
    title = ", ".join(spread.of) or "(none)"
    return (
        title if name is None else name,
        f"{spread.pairs:,}",
        *("no delay" if d is None else length(d) for d in delays),
    )


def outcome_row(outcome: Outcome, declared: timedelta) -> tuple[str, ...]:
    """The cells of one delay, under `OUTCOMES`; the `declared` one is marked."""
    return (
        length(outcome.delay) + (" (declared)" if outcome.delay == declared else ""),
        f"{outcome.share_on_time:.2%}",
        f"{outcome.late:,}",
        "none closed" if outcome.mean_wait is None else length(outcome.mean_wait),
        "" if outcome.max_wait is None else length(outcome.max_wait),
        f"{outcome.mean_open:,.1f}",
        f"{outcome.max_open:,}",
    )


def length(time: timedelta) -> str:
    """A length of time in its two greatest units, such as `1 h 5 min`; milliseconds below a second."""
    if timedelta() < time < timedelta(seconds=1):
        return f"{-(-time // timedelta(milliseconds=1))} ms"
    seconds, parts = round(time.total_seconds()), []
    for unit, size in _UNITS:
        if seconds >= size:
            parts.append(f"{seconds // size} {unit}")
            seconds %= size
    return " ".join(parts[:2]) or "0 s"
