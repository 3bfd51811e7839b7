"""Bounded iteration: a value is fed back until it is done, or has gone round too often."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streaming.base import check_number, check_type
from streaming.declare import Keyed, OnError, Stream, check_callable
from streaming.keyed.fold import Key
from streaming.keyed.schemas import type_of

UNFINISHED = "unfinished"
"""The side output of values that have gone round too often."""


@dataclass(frozen=True)
class _GoRound:
    """Applies `body` as long as `goes_on`, at most so many times."""

    value: str
    body: Callable[[Any], Any]
    goes_on: Callable[[Any], bool]
    rounds: int

    def __call__(self, key: Key, row: Any) -> None:
        value, done = row[self.value], 0
        while self.goes_on(value):
            if done == self.rounds:
                key.emit(UNFINISHED, given=row[self.value], value=value)
                return
            value, done = self.body(value), done + 1
        key.emit(given=row[self.value], value=value, rounds=done)


def iterated(
    name: str,
    of: Stream,
    *,
    value: str,
    body: Callable[[Any], Any],
    goes_on: Callable[[Any], bool],
    by: tuple[str, ...],
    rounds: int = 1000,
    on_error: OnError = "pause",
    version: int = 1,
    description: str = "",
) -> Keyed:
    """A function of each row that feeds its value back into `body` while `goes_on` (as Flink's iterations).

    The result has the column `value` as it was `given`, what became of it as `value`, and how many `rounds` it took. A
    value that still goes on after `rounds` of them goes to the side output `unfinished`, so that no row can hold up its
    stream. It keeps no state; `by` only spreads the rows.

    Raises:
        DeclarationError: `rounds` is below 1, an unknown column or one whose type is not known, or a function that
            workers cannot find.
    """
    check_type(f"of= of iteration {name!r}", of, Stream, "the stream that it reads")
    check_number(f"rounds={rounds!r} of iteration {name!r}", rounds, "number of rounds")
    for what, function in (("body", body), ("goes_on", goes_on)):
        check_callable(f"{what}= of iteration {name!r}", function)
    kind = type_of(f"value= of iteration {name!r}", of, value)
    return Keyed(
        name=name,
        of=of,
        by=by,
        state="",
        result=f"given {kind}, value {kind}, rounds bigint",
        on_row=_GoRound(value, body, goes_on, rounds),
        sides={UNFINISHED: f"given {kind}, value {kind}"},
        on_error=on_error,
        version=version,
        description=description,
    )
