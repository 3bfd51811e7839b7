"""The answer to why a result is what it is: the rows that made it, those that did not, and what became of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, singledispatch
from math import isfinite
from sys import float_info
from typing import TYPE_CHECKING, Any, Literal

from pydantic_core import to_jsonable_python

from streaming.base import DAY, ROUNDING, OperatorError, counted, is_close, is_same
from streaming.declare import Operator, Pipeline
from streaming.lake import Lake
from streaming.reading import key_as_typed
from streaming.tables import FilesRead

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

What = Literal["current", "first"]
Row = Mapping[str, Any]
TAKEN_BACK = "taken back"
"""The reason for which a row does not count of which nothing is left, or that takes another one back."""

MadeOf = tuple[Operator, Row]
"""An operator, and the key of a group of its results."""


@dataclass(frozen=True)
class InputRow:
    """A row of a stream's log that a result is made of, or could have been.

    `values` are those columns that the result is computed from. `origin` is where the row is from, as its source tells
    it, and `place` the same in words. `stamp` is the watermark that was in force when its `batch` came, and `late` says
    that it was too late for a first result. `counts` tells whether the number that is explained counts it; if not,
    `reason` says why. `change` is -1 in a row that takes another one back, `sequence` orders the revisions of a key,
    `repairs` is the batch of the rejected row that it repairs, and `line` that of its file at which it begins, from 1,
    where that is known.
    """

    stream: str
    place: str
    origin: Row
    batch: int
    values: Row
    event_time: datetime | None = None
    ingested_at: datetime | None = None
    stamp: datetime | None = None
    late: bool = False
    counts: bool = True
    reason: str = ""
    change: int = 1
    sequence: str | None = None
    repairs: int | None = None
    line: int | None = None


@dataclass(frozen=True)
class RejectedRow:
    """A row that was rejected for its `reasons` and is of this result as far as can be told.

    `certain` is false where a part of the key could not be read. `repaired_in` is the batch that repairs it, and `line`
    as that of an `InputRow`.
    """

    stream: str
    place: str
    origin: Row
    batch: int
    reasons: tuple[str, ...]
    payload: str | None
    certain: bool = True
    repaired_in: int | None = None
    line: int | None = None


@dataclass(frozen=True)
class Change:
    """One change of what is current of a result: its values before and after, None where there was no result.

    `reason` is `first`, `update` or `correction`, `told_at` when it was published, `corrected_at` when a correction was
    computed. `through` is the newest batch of each log that it counts, and `causes` are the places of the late rows
    that it was the first to count.
    """

    revision: int
    reason: str
    was: tuple[Row, ...]
    now: tuple[Row, ...]
    told_at: datetime | None = None
    corrected_at: datetime | None = None
    through: Mapping[str, int] = field(default_factory=dict)
    causes: tuple[str, ...] = ()


@dataclass(frozen=True)
class PinInForce:
    """The state of a control stream or a history that some of the rows that count have looked into.

    `of` is its name, and `newest` the newest of its batches that they see, -1 for none. They are the rows of the
    batches `first` to `last` of `stream`, or its timers, where these are None.
    """

    of: str
    newest: int
    stream: str
    first: int | None = None
    last: int | None = None


@dataclass(frozen=True)
class Verdict:
    """A verdict of the gate on a table that a report was made of."""

    table: str
    version: int
    expectation: str
    outcome: str
    observed: str
    judged_at: datetime


@dataclass(frozen=True)
class Why:
    """Why one result is what it is.

    `published` are its rows as readers see them, `recomputed` those that the rows in `inputs` that count give, and
    `agrees` says whether the two are equal: None where nothing is published yet, or nothing can be recomputed. `said`
    tells it in words. `rules` are what decided on the rows, by name, and `pins` how far what they looked into was;
    `versions` those of the tables that were read, of Tidemark and of Spark. `upstream` explains the results of other
    operators that the rows are, down to the first log.
    """

    pipeline: str
    operator: str
    kind: str
    what: What
    key: Row
    agrees: bool | None
    said: str
    published: tuple[Row, ...]
    recomputed: tuple[Row, ...]
    inputs: tuple[InputRow, ...] = field(repr=False)
    rejected: tuple[RejectedRow, ...] = field(default=(), repr=False)
    changes: tuple[Change, ...] = field(default=(), repr=False)
    rules: Mapping[str, str] = field(default_factory=dict, repr=False)
    pins: tuple[PinInForce, ...] = field(default=(), repr=False)
    versions: Mapping[str, Any] = field(default_factory=dict, repr=False)
    verdicts: tuple[Verdict, ...] = field(default=(), repr=False)
    upstream: tuple[Why, ...] = field(default=(), repr=False)
    notes: tuple[str, ...] = field(default=(), repr=False)
    files: FilesRead = field(default_factory=FilesRead, repr=False)

    @property
    def counting(self) -> tuple[InputRow, ...]:
        """Those of the rows that the number counts."""
        return tuple(row for row in self.inputs if row.counts)

    @property
    def holds(self) -> bool:
        """True unless a result differs from what its rows give, here or upstream."""
        return self.agrees is not False and all(each.holds for each in self.upstream)

    def document(self) -> dict[str, Any]:
        """The answer as `tidemark why --json` prints it: dates, instants and decimals are texts."""
        told: dict[str, Any] = to_jsonable_python(
            self, inf_nan_mode="strings", bytes_mode="base64", serialize_unknown=True
        )
        return told

    def __str__(self) -> str:
        return f"{self.pipeline}/{self.operator} {key_as_typed(self.key)}: {self.said}"


@dataclass(frozen=True)
class Question:
    """One group of an operator's results, by its `key`, and how it is `published`.

    `stored` are its published rows with all columns of their table. `spark` starts a session where there is none.
    """

    lake: Lake
    pipeline: Pipeline
    operator: Operator
    what: What
    key: Row
    stored: tuple[Row, ...]
    spark: Callable[[], SparkSession]

    @property
    def published(self) -> tuple[Row, ...]:
        """The rows as readers see them."""
        return tuple({name: row[name] for name in self.operator.columns if name in row} for row in self.stored)


@dataclass(frozen=True)
class Evidence:
    """The part of an answer that depends on the kind of the operator.

    `recomputed` is None where nothing can be recomputed; then `why_not` says why. `made_of` are groups of results that
    are among the inputs themselves. `is_due` tells that a result of rows that were on time has to be published by now.
    `roundings` are by column how far doubles may be apart, where that is known.
    """

    inputs: tuple[InputRow, ...]
    recomputed: tuple[Row, ...] | None
    rejected: tuple[RejectedRow, ...] = ()
    changes: tuple[Change, ...] = ()
    notes: tuple[str, ...] = ()
    why_not: str = ""
    files: FilesRead = field(default_factory=FilesRead)
    versions: Mapping[str, int] = field(default_factory=dict)
    made_of: tuple[MadeOf, ...] = ()
    is_due: bool = False
    roundings: Mapping[str, float] = field(default_factory=dict)
    pins: tuple[PinInForce, ...] = ()

    def rounding(self, name: str) -> float:
        """The distance of two doubles in a column of the result that differ in the order of their rows alone."""
        return self.roundings.get(name, self._rounding)

    @cached_property
    def _rounding(self) -> float:
        """The rounding of a sum of all doubles in the rows that count, as nobody knows which of them are added."""
        values = (value for row in self.inputs if row.counts for value in row.values.values())
        doubles = [abs(value) for value in values if isinstance(value, float) and isfinite(value)]
        return max(ROUNDING, len(doubles) * sum(doubles) * float_info.epsilon)

    def without(self, why_not: str) -> Evidence:
        """The evidence of what cannot be recomputed, and why."""
        return replace(self, recomputed=None, why_not=why_not)


def waits_for_correction(question: Question, day_of: datetime, inputs: Iterable[InputRow]) -> Iterator[str]:
    """The note that late rows wait for a correction of the day of an instant, where what is current is asked for."""
    waiting = [row for row in inputs if row.late and not row.counts and row.reason != TAKEN_BACK]
    if question.what == "current" and waiting:
        wait = "waits" if len(waiting) == 1 else "wait"
        command = f"tidemark correct {question.pipeline.name} --day {day_of.astimezone(UTC).date()}"
        yield f"{counted(len(waiting), 'late row')} {wait} for `{command}`"


@singledispatch
def evidence_of(operator: Operator, question: Question) -> Evidence:
    """The rows that made a group of results; `evidence_of.register` adds a kind of operator.

    Raises:
        OperatorError: nothing is known of this kind.
    """
    raise OperatorError(
        f"nobody can tell which rows made one result of {operator.kind_name} {operator.name!r}",
        f"`tidemark show {question.pipeline.name} --view {operator.name}` shows its rows; for a kind of your own, "
        "register a function with `streaming.provenance.evidence_of`.",
        operator=operator.name,
    )


def compared(published: Sequence[Row], evidence: Evidence) -> tuple[bool | None, str]:
    """True where a published result is what its rows give, None where nobody can tell; and words for it."""
    recomputed = evidence.recomputed
    if recomputed is None:
        return None, f"it cannot be recomputed: {evidence.why_not}"
    if not published:
        rows = counted(len(recomputed), "row") if recomputed else "nothing"
        if evidence.is_due and recomputed:
            rows = key_as_typed(recomputed[0]) if len(recomputed) == 1 else rows
            return False, f"NOTHING IS PUBLISHED THOUGH IT IS DUE: its rows give {rows}"
        return None, f"nothing is published; its rows so far give {rows}"
    if are_same(published, recomputed, evidence.rounding):
        return True, "recomputed from exactly these rows, it is the same"
    differences = _differences(published, recomputed, evidence.rounding)
    return False, f"RECOMPUTED FROM EXACTLY THESE ROWS, IT IS NOT THE SAME: {differences}"


def are_same(some: Sequence[Row], others: Sequence[Row], rounding: Callable[[str], float] | None = None) -> bool:
    """True if two results have equal rows, in any order; doubles may differ by the order in which they are added.

    `rounding` tells how far for a column; without it they are the same to the last digit.
    """
    left = list(others)
    for row in some:
        place = next((place for place, other in enumerate(left) if not _apart(row, other, rounding)), None)
        if place is None:
            return False
        del left[place]
    return not left


def _apart(one: Row, other: Row, rounding: Callable[[str], float] | None) -> list[str]:
    """The columns in which two rows differ."""
    return [
        name
        for name in dict.fromkeys((*one, *other))
        if name not in one
        or name not in other
        or not (
            is_same(one[name], other[name]) if rounding is None else is_close(one[name], other[name], rounding(name))
        )
    ]


def _differences(published: Sequence[Row], recomputed: Sequence[Row], rounding: Callable[[str], float]) -> str:
    if len(published) == len(recomputed) == 1:
        one, other = published[0], recomputed[0]
        apart = _apart(one, other, rounding)
        return ", ".join(f"{name} is {one.get(name)} and should be {other.get(name)}" for name in apart)
    return f"{counted(len(published), 'row')} published, {counted(len(recomputed), 'row')} recomputed"


def values_of(operator: Operator, rows: Sequence[Mapping[str, Any]]) -> tuple[Row, ...]:
    """The columns of a result alone, of some rows that have others too."""
    return tuple({name: row[name] for name in operator.columns if name in row and name != DAY} for row in rows)
