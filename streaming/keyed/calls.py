"""The calls of a keyed function over some rows, one after another: for which row or timer, and what each leaves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame

from streaming.base import FunctionError, computes_as_sql
from streaming.declare import Keyed
from streaming.keyed.fold import IDLE, Key
from streaming.keyed.rules import PinnedRules
from streaming.keyed.steps import in_order
from streaming.keyed.tasks import fold_partition

ROW = "_row"
"""The column of a frame that numbers its rows, by which a call names the one that it is for."""

_CALLS = "row bigint, timer string, at bigint, emitted bigint, is_empty boolean, pin bigint, error string"
_SCHEMA = pa.schema(
    [
        ("row", pa.int64()),
        ("timer", pa.string()),
        ("at", pa.int64()),
        ("emitted", pa.int64()),
        ("is_empty", pa.bool_()),
        ("pin", pa.int64()),
        ("error", pa.string()),
    ]
)


class Call(NamedTuple):
    """A call of a function: for a `row`, by its number, or for a `timer`, by its name, and at which time of the key.

    `emitted` is the number of results that it emits, and `is_empty` tells that nothing is kept of the key behind it:
    what comes later is the same without all that came before. `pin` is the newest batch of the rules that it has seen,
    -1 for none; None where the function has no rules.
    """

    row: int | None
    timer: str | None
    at: int
    emitted: int
    is_empty: bool
    pin: int | None


def calls_of(keyed: Keyed, rows: Mapping[str, DataFrame], clock: int, rules: PinnedRules | None) -> list[Call]:
    """The calls for the `rows` of one key, by stream, and for its timers up to `clock` in microseconds, in their order.

    The rows have a column `ROW` besides those of their log. In order `event` there is none for one that is taken back.

    Raises:
        FunctionError: the function raised.
    """
    frame = in_order(keyed, rows, rules, beside=(ROW,))
    told = frame.mapInArrow(_TellCalls(keyed, clock, rules), _CALLS).collect()
    for row in told:
        if row["error"] is not None:
            raise FunctionError(row["error"])
    return [Call(*row[:-1]) for row in told]


@dataclass(frozen=True)
class _TellCalls:
    """Fold a partition up to `clock` and tell its calls in the columns of `Call`, or the error that it raised."""

    keyed: Keyed
    clock: int
    rules: PinnedRules | None

    @computes_as_sql
    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        calls = _Calls(self.keyed.order == "event", self.rules is not None)
        try:
            for folded in fold_partition(
                self.keyed, self.clock, calls.numbered(batches), self.rules, observe=calls.observe
            ):
                if isinstance(folded, list):
                    calls.outputs_taken()
            yield pa.RecordBatch.from_pylist(calls.told, schema=_SCHEMA)
        except FunctionError as error:
            yield pa.RecordBatch.from_pylist([{"error": str(error)}], schema=_SCHEMA)


@dataclass
class _Calls:
    """The calls so far, and the numbers of rows that are yet to be handled."""

    _by_event_time: bool
    _has_rules: bool
    told: list[dict[str, Any]] = field(default_factory=list)
    _rows: list[int] = field(default_factory=list)
    _handled: int = 0
    _outputs: int = 0

    def numbered(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches, whose last column has the numbers of their rows."""
        for batch in batches:
            self._rows += batch.column(batch.num_columns - 1).to_pylist()
            yield batch

    def outputs_taken(self) -> None:
        """Begin to count anew: the fold has handed on what was emitted."""
        self._outputs = 0

    def observe(self, key: Key, timer: str | None) -> None:
        """Take note of a call that has ended."""
        emitted = key._out[self._outputs :]
        self._outputs += len(emitted)
        row = None
        if timer is None:
            row, self._handled = self._rows[self._handled], self._handled + 1
        # In order of event time the next row moves the end of a key that has nothing else; a late one does not.
        timers = key._timers.keys() - ({IDLE} if self._by_event_time else set())
        is_empty = not timers and all(getattr(key, name) is None for name in key._fields)
        results = sum(not output.to for output in emitted)
        pin = key.rules.pin if self._has_rules else None
        self.told.append(
            {"row": row, "timer": timer, "at": key.at, "emitted": results, "is_empty": is_empty, "pin": pin}
        )
