"""The rule by which an hour is unusual, by what the same hours of the week were before, for gates and alerts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Literal

from streaming.base import DeclarationError, interval, settle

_COLUMN = r"`?(?P<column>\w+)`?"
_FORMS = {
    "rows": r"count\(\*\)",
    "sum": rf"sum\({_COLUMN}\)",
    "mean": rf"avg\({_COLUMN}\)",
    "null_share": rf"count_if\({_COLUMN} is null\) ?/ ?count\(\*\)",
}
_NUMBERS = frozenset({"tinyint", "smallint", "int", "bigint", "float", "double", "decimal"})


@dataclass(frozen=True)
class HourlySum:
    """An aggregate that follows from sums over the files of a table: of rows, or of the values of one column."""

    kind: Literal["rows", "sum", "mean", "null_share"]
    column: str | None = None


@dataclass(frozen=True)
class Usual:
    """The rule by which an hour is unusual.

    `value` is an SQL aggregate over the rows of an hour: `count(*)`, `avg(amount)`, or
    `count_if(amount is null) / count(*)`. An hour without rows counts 0 rows, and has no other value. The same rule is
    an expectation of the gate (`usual(name, rule)`) and an alert (`Limits(usual={"orders": (rule,)})`).

    An hour is compared with the same hour of the week, in UTC, of the `weeks` before those that are judged, by their
    median. Its modified z-score is 0.6745 (x - median) / MAD, with the median absolute deviation MAD, and above
    `factor` it is an outlier: 3.5 is what B. Iglewicz and D. Hoaglin recommend ("How to Detect and Handle Outliers",
    ASQC Quality Press 1993). A MAD of a handful of weeks is often too small by chance, so the spread is at least that
    of all hours around the medians of theirs, relative to these: the residuals after the season is taken out, as J.
    Hochenbaum, O. Vallis and A. Kejariwal do it ("Automatic Anomaly Detection in the Cloud Via Statistical Learning",
    2017). It is that of a new hour, which is wider than that of those it is learnt from. Of counts it is at least the
    square root of the median, as that of a Poisson distribution.

    `last` is how much before the clock is judged, by an alert as far as it was not judged before. `minimum` is how many
    of the weeks an hour must have: until then nothing is told of it. A difference below `least` is none. Of the days
    `holidays` nothing is told or learnt.

    Raises:
        DeclarationError: a number is not positive, or more weeks are needed than are looked at.
    """

    value: str = "count(*)"
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

    @property
    def hourly_sum(self) -> HourlySum | None:
        """The value as sums tell it without Spark; None of any other aggregate."""
        written = " ".join(self.value.split())
        for kind, form in _FORMS.items():
            matched = re.fullmatch(form, written, re.IGNORECASE)
            if matched is not None:
                return HourlySum(kind, matched.groupdict().get("column"))  # type: ignore[arg-type]
        return None


def usual_of(rule: str | Usual) -> Usual:
    """The rule, also where it is written in short."""
    return Usual(rule) if isinstance(rule, str) else rule


def check_usual(
    pipeline: str, usual: Mapping[str, tuple[Usual, ...]], tables: Mapping[str, Mapping[str, str | None]]
) -> None:
    """Refuse rules of what is not among `tables`, and values that are not told while a stream runs.

    `tables` are the streams and views with their columns and the types of these, where they are known.

    Raises:
        DeclarationError: with the tables, values or columns there are.
    """
    for name, rules in usual.items():
        if name not in tables:
            raise DeclarationError(
                f"usual of the limits of pipeline {pipeline!r} is of {name!r}, which is no stream of it and no view "
                "whose windows have a length",
                f"use some of: {', '.join(tables)}.",
                field="usual",
                value=name,
                choices=tuple(tables),
            )
        for rule in rules:
            asked = rule.hourly_sum
            if asked is None:
                raise DeclarationError(
                    f"{rule.value!r} of {name!r} cannot be told while a stream runs: only sums over its files are",
                    "write count(*), sum(column), avg(column) or count_if(column is null) / count(*); the gate's "
                    "usual(...) takes any aggregate, and a view can compute one by the hour.",
                    field="usual",
                    value=rule.value,
                )
            types = tables[name]
            numeric = asked.kind in ("sum", "mean")
            choices = tuple(each for each, type_ in types.items() if not numeric or _may_be_number(type_))
            if asked.column is not None and asked.column not in choices:
                why = "no number" if asked.column in types else "no column of it"
                raise DeclarationError(
                    f"{rule.value!r} of {name!r} cannot be told: {asked.column!r} is {why}",
                    f"use some of: {', '.join(choices) or 'none is there'}.",
                    field="usual",
                    value=asked.column,
                    choices=choices,
                )


def _may_be_number(type_: str | None) -> bool:
    """True of a column of a numeric SQL type, such as `decimal(9,2)`, or of a type that nobody knows yet."""
    return type_ is None or type_.partition("(")[0].strip().lower() in _NUMBERS
