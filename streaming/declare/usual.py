"""The rule by which an hour is unusual, by what the same hours of the week were before."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta

from streaming.base import DeclarationError, interval, settle


@dataclass(frozen=True)
class Usual:
    """The rule by which an hour is unusual.

    An hour is compared with the same hour of the week, in UTC, of the `weeks` before those that are judged, by their
    median. Its modified z-score is 0.6745 (x - median) / MAD, with the median absolute deviation MAD, and above
    `factor` it is an outlier: 3.5 is what B. Iglewicz and D. Hoaglin recommend ("How to Detect and Handle Outliers",
    ASQC Quality Press 1993). A MAD of a handful of weeks is often too small by chance, so the spread is at least that
    of all hours around the medians of theirs, relative to these: the residuals after the season is taken out, as J.
    Hochenbaum, O. Vallis and A. Kejariwal do it ("Automatic Anomaly Detection in the Cloud Via Statistical Learning",
    2017). It is that of a new hour, which is wider than that of those it is learnt from. Of counts it is at least the
    square root of the median, as that of a Poisson distribution.

    `last` is how much before the clock is judged, and `minimum` how many of the weeks an hour must have: until then
    nothing is told of it. A difference below `least` is none. Of the days `holidays` nothing is told or learnt.

    Raises:
        DeclarationError: a number is not positive, or more weeks are needed than are looked at.
    """

    weeks: int = 8
    minimum: int = 4
    factor: float = 3.5
    last: str = "1 day"
    least: float = 0.0
    holidays: tuple[date, ...] = ()

    def __post_init__(self) -> None:
        settle(self, "a rule of what is usual")
        if not 2 <= self.minimum <= self.weeks:
            raise DeclarationError(
                f"minimum={self.minimum} of weeks={self.weeks} cannot be: a spread needs two of them at least",
                "give a minimum from 2 to the number of weeks.",
                field="minimum",
                value=self.minimum,
            )
        if self.factor <= 0 or self.least < 0:
            raise DeclarationError(
                f"factor={self.factor} and least={self.least} cannot tell what is unusual",
                "give a factor above 0, such as 3.5, and a least of 0 or more.",
                field="factor",
                value=self.factor,
            )
        if interval(self.last) < timedelta(hours=1):
            raise DeclarationError(
                f"last={self.last!r} is shorter than the hour that is judged",
                "give an hour at least.",
                field="last",
                value=self.last,
            )
