"""A lateness profile in words: cells of tables, lengths of time as people say them."""

from __future__ import annotations

from datetime import timedelta

from streaming.base import interval
from streaming.lateness import Outcome, Profile, Spread

SPREADS = ("rows in windows", "half", "90 %", "99 %", "all")
OUTCOMES = ("delay", "on time", "late", "mean wait", "longest wait", "open, mean", "open, most")
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


def explained(profile: Profile) -> str:
    """Why a delay is recommended, what it would bring and what it would cost, in sentences."""
    wanted = f"{profile.complete * 100:g} %"
    needed = profile.needed.quantile(profile.complete)
    if profile.recommended is None or needed is None:
        return (
            f"No delay makes {wanted} of the rows come on time: {profile.needed.never:,} of {profile.needed.total:,} "
            "came after an end of input had closed their windows."
        )
    outcomes = {outcome.delay: outcome for outcome in profile.outcomes}
    recommended, declared = outcomes[interval(profile.recommended)], outcomes[interval(profile.declared)]
    why = _why(profile, wanted, needed)
    if recommended is declared:
        return f"{why} It is the declared one: {_late(recommended)}, and {_wait(recommended)}."
    longer = recommended.delay > declared.delay
    price = (
        "Fewer rows are late, for results that come later." if longer else "Results come sooner, for more late rows."
    )
    return (
        f"{why} With it {_late(recommended)}, and {_wait(recommended)}; with the declared {profile.declared} "
        f"{_late(declared)}, and {_wait(declared)}. {price}"
    )


def _why(profile: Profile, wanted: str, needed: timedelta) -> str:
    if not needed:
        return f"The recommended delay is 0 seconds: {wanted} of the rows need none."
    return (
        f"The recommended delay is {profile.recommended}: {wanted} of the rows need {length(needed)} or less, and this "
        "is the next length of time that people write."
    )


def _late(outcome: Outcome) -> str:
    return f"{outcome.late:,} of {outcome.pairs:,} rows are late ({outcome.share_on_time:.2%} on time)"


def _wait(outcome: Outcome) -> str:
    if outcome.mean_wait is None or outcome.max_wait is None:
        return "no result is closed by the clock alone"
    return f"a result waits {length(outcome.mean_wait)} in the mean, {length(outcome.max_wait)} at most"


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
