"""The freshness that is asked of a stream or view: how old the newest row may be, also of each value by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from streaming.base import DeclarationError, interval, settle

_INCOMPARABLE = ("float", "double", "array", "map", "struct", "variant")
"""Types of which two equal values may look different, or which cannot be compared."""


@dataclass(frozen=True)
class Freshness:
    """The age that the newest row may have, by event time; `"2 hours"` alone is short for `Freshness("2 hours")`.

    `within`, such as `"2 hours"`, is how old the watermark may be. With `by`, columns such as `("tenant",)`, each
    combination of their values that has come is asked for besides: its newest valid row, or of a view its newest
    window, must be as young. One without any for `retired_after` is retired: nobody asks for it until it comes again.
    The `named` ones that are furthest behind are told by name, and all are counted.

    Raises:
        DeclarationError: an interval cannot be read, a value would be retired before it is late, a column is named
            twice, or nothing would be named.
    """

    within: str
    by: tuple[str, ...] = ()
    retired_after: str = "30 days"
    named: int = 10

    def __post_init__(self) -> None:
        settle(self, "fresh_within")
        if interval(self.within) <= timedelta():
            raise DeclarationError(
                f"within={self.within!r} of fresh_within is no length of time",
                "write one such as '2 hours'.",
                field="within",
                value=self.within,
            )
        if interval(self.retired_after) <= interval(self.within):
            raise DeclarationError(
                f"retired_after={self.retired_after!r} of fresh_within is not longer than within={self.within!r}, so "
                "that a value would be retired before it is late",
                "give it a longer time, such as '30 days'.",
                field="retired_after",
                value=self.retired_after,
            )
        if len({*self.by}) != len(self.by):
            raise DeclarationError(
                f"by={self.by!r} of fresh_within repeats a column", "name each once.", field="by", value=self.by
            )
        if self.named < 1:
            raise DeclarationError(
                f"named={self.named} of fresh_within would name none that is late",
                "name at least 1.",
                field="named",
                value=self.named,
            )

    @property
    def length(self) -> timedelta:
        """The time that the newest row may be old."""
        return interval(self.within)

    @property
    def remembered(self) -> timedelta:
        """The time after which a value without a row is retired."""
        return interval(self.retired_after)


def freshness_of(fresh_within: str | Freshness | None) -> Freshness | None:
    """The freshness that `fresh_within` asks for, also where it is written in short; None where it asks for none."""
    return Freshness(fresh_within) if isinstance(fresh_within, str) else fresh_within


def check_freshness(what: str, fresh_within: str | Freshness | None, types: Mapping[str, str | None]) -> None:
    """Refuse a freshness by a column that is not among `types`, or whose values cannot be told apart.

    Raises:
        DeclarationError: with the columns there are.
    """
    freshness = freshness_of(fresh_within)
    for name in () if freshness is None else freshness.by:
        type_ = types.get(name) or ""
        if name not in types or type_.startswith(_INCOMPARABLE):
            why = f"of type {type_}, whose values cannot be told apart" if name in types else "no column of it"
            choices = tuple(each for each, type_ in types.items() if not (type_ or "").startswith(_INCOMPARABLE))
            raise DeclarationError(
                f"fresh_within of {what} is by {name!r}, which is {why}",
                f"use some of: {', '.join(choices) or 'none is there'}.",
                field="by",
                value=name,
                choices=choices,
            )
