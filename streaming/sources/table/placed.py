"""Which rows of a table of the lake a stream can follow, and what says in which order they came."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from deltalake import DeltaTable

from streaming.base import DeclarationError, by_kind, from_micros
from streaming.lake import Lake

BEGIN = -(2**62)
"""Before every unit."""


def never_built_anew(table: DeltaTable) -> int:
    """The generation of a table that is written once and for ever."""
    return 0


def nothing_dropped(table: DeltaTable) -> Mapping[int, int]:
    """Per unit the rows that were dropped from a table that drops none."""
    return {}


def nothing_told(table: DeltaTable, unit: int) -> datetime | None:
    """The watermark of a table that tells none."""
    return None


@dataclass(frozen=True)
class UnitTable:
    """A table whose rows come in units, such as the batches of a log: all of a unit in one commit, in rising order.

    So a reader of rows alone, whatever files they lie in, knows what is new: the units above those it has. `unit` is
    the column that numbers them, a bigint or a timestamp, whose numbers are its microseconds; `unit_name` is what
    people call one, such as `batch`. `order` are the columns that order the rows of a unit, before all others.
    `written` tells when a row was written, and `at` its event time. `dated`: only rows with a day count. `generation`
    tells how often an open table was built anew, `dropped` how many rows of each unit have left it by a retention,
    `made_by` what to do where there is none yet.

    `sign`: the column that is -1 in rows which take back an earlier one, with its values, and 1 in all others; then
    `copy` is the one that numbers equal rows, where there is one. `watermark` tells of an open table the event time
    before which no later unit has a row for the first time, once all up to a unit are taken.
    """

    uri: str
    unit: str
    unit_name: str
    written: str
    at: str
    made_by: str
    order: tuple[str, ...] = ()
    dated: bool = False
    instants: bool = True
    generation: Callable[[DeltaTable], int] = never_built_anew
    dropped: Callable[[DeltaTable], Mapping[int, int]] = nothing_dropped
    sign: str = ""
    copy: str = ""
    watermark: Callable[[DeltaTable, int], datetime | None] = nothing_told

    def words(self, unit: int) -> str:
        """A unit for people."""
        return from_micros(unit).isoformat() if self.instants else str(unit)

    def range_words(self, first: int, end: int) -> str:
        """The units in [first, end), as far as they are known to be there: `batch 2 to 4`."""
        last = self.words(end - 1)
        if first <= BEGIN:
            return f"everything up to {self.unit_name} {last}"
        return f"{self.unit_name} {last}" if first == end - 1 else f"{self.unit_name} {self.words(first)} to {last}"


def check_has_side(of: str, kind: str, side: str, outputs: Iterable[str]) -> None:
    """Refuse a `side` that is none of the `outputs` of the operator `of`; `kind` is what people call it.

    Raises:
        DeclarationError: with those there are.
    """
    outputs = tuple(outputs)
    if side not in outputs:
        sides = ", ".join(repr(name) for name in outputs if name)
        raise DeclarationError(
            f"Table({of!r}, side={side!r}): the {kind} has no such side output; it has {sides or 'none'}."
        )


@by_kind
def unit_table_of(of: Any, lake: Lake, side: str) -> UnitTable:
    """The rows of `of` that a stream may follow: those of a stream's log, or what the runtime of an operator says.

    `side` names a side output of it, "" its own results.

    Raises:
        DeclarationError: nothing is known of this kind, or it has no such side output.
    """
    raise DeclarationError(
        f"Table(of={of!r}) is of a {type(of).__name__}, which no stream can follow; write a stream, an operator such "
        "as a view, or the path of a Delta table as text."
    )


@by_kind
def changes_of(of: Any, lake: Lake) -> UnitTable:
    """The changes of what is current of an operator, a unit for each revision.

    Raises:
        DeclarationError: nothing corrects its results, or it is no operator.
    """
    raise DeclarationError(
        f"Table(of={of!r}, what='current') is of a {type(of).__name__}, which has no current results; write an "
        "operator whose results are corrected, such as a view, or leave what out."
    )
