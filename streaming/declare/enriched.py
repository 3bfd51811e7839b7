"""The declaration of an enrichment: the rows of a stream, each with the answer of a call to somewhere else."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import pyarrow as pa

from streaming.base import INGESTED_AT, ORIGIN, FrozenMapping, Types, check_name
from streaming.declare.columns import ColumnSpec
from streaming.declare.enriched_checks import (
    answer_schema,
    check_answers,
    check_asked_by,
    check_enriched_types,
    check_names_free,
)
from streaming.declare.enriched_columns import (
    FAILURE,
    answer_columns,
    asked_columns,
    failure_columns,
    pending_columns,
    place_columns,
)
from streaming.declare.operator import Operator, TableSpec
from streaming.declare.selected_checks import check_side
from streaming.declare.selected_columns import side_columns
from streaming.declare.side import Side
from streaming.declare.stream import Stream
from streaming.declare.suffixes import FAILED, PENDING

LookupOrder = Literal["arrival", "as they come"]
OnFailure = Literal["side", "null", "default"]


@dataclass(frozen=True)
class LookupRequest:
    """What a call is told besides its row.

    `key`: the idempotency key, the same whenever the same row is asked for again, also after a crash. `attempt`: from 1
    on. `opened`: what `opens` gave, None without it.
    """

    key: str
    attempt: int
    opened: Any = None


@dataclass(frozen=True)
class Enriched(Operator):
    """The valid rows of the stream `of`, each with the answer of `call` (as Flink's asynchronous I/O).

    `call(row, request)` is an `async` function, of which `capacity` (100 if left out) wait for answers at a time; or a
    plain one, which is run in as many processes (one per core if left out) that are killed where they hang. The row has
    the selected columns as attributes, times as whole microseconds; `request` is a `LookupRequest`. It returns a
    mapping with the columns of `result`, such as `{"room": "string"}`, or None where there is nothing to be found: then
    `default` takes the place of the answer. `opens()` is a context manager (of an async call an async one), entered
    once, whose value is `request.opened`: a client or a pool. It defaults to the call's own `opens`, where it has one.

    With a `key` rows that are equal in these columns share a call, which is handed no other column, and `cache` keeps
    answers for that long.

    An attempt takes at most `timeout`; `retries` more follow, each later than the one before. What then has no answer
    goes to the side output `failed` with why (`on_failure="side"`), or to the results with nulls or defaults, and
    `_error`; so does a row of which a selected column cannot be computed, without an attempt. Rows that wait are in the
    table `pending` and are worked off by later steps.

    `order="arrival"`: rows come out in the order of the log, so one that waits holds back those behind it. `"as they
    come"`: each as soon as it has its answer; a stream that follows the table may find it late by its own clock.

    What is answered is never asked again, and nothing of it can be rebuilt: `version` is written to each row, and
    another call, key or timeout is adopted from the next row on. A row that was asked for and not yet written when the
    process died is asked for once more, with the same `request.key`.

    Raises:
        DeclarationError: an unknown column, a name that is taken, or a call that cannot be found by its name.
    """

    name: str
    of: Stream
    call: Callable[[Any, LookupRequest], Any]
    result: Mapping[str, str]
    key: tuple[str, ...] = ()
    select: tuple[str, ...] | Mapping[str, str] | None = None
    timeout: str = "1 second"
    capacity: int | None = None
    retries: int = 0
    order: LookupOrder = "arrival"
    cache: str | None = None
    on_failure: OnFailure = "side"
    default: Mapping[str, Any] = field(default_factory=dict)
    opens: Callable[[], Any] | None = None
    version: int = 1
    description: str = ""
    every: str | None = None

    kind_name = "enrichment"

    def __post_init__(self) -> None:
        check_name(self.kind_name, self.name)
        check_enriched_types(vars(self))
        for name in ("result", "default"):
            object.__setattr__(self, name, FrozenMapping(getattr(self, name)))
        object.__setattr__(self, "select", self.selected.select)
        check_answers(self.name, self.result, self.default, self.on_failure)
        check_asked_by(self.name, self.key, self.types, self.cache)
        added = {"the result": tuple(self.result), "the side output 'failed'": tuple(FAILURE)}
        check_names_free(self.name, self.types, added)

    @property
    def reads(self) -> tuple[Stream, ...]:
        """The one stream."""
        return (self.of,)

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        """The rows with their answers, those without one, and those that wait."""
        about = f": {self.description}" if self.description else ""
        failed, pending = f"Rows without an answer of {self.name}", f"Rows that wait for an answer of {self.name}"
        return (
            TableSpec("", f"Rows of enrichment {self.name}{about}"),
            TableSpec(FAILED, failed, is_result=False),
            TableSpec(PENDING, pending, is_result=False, is_state=True),
        )

    @property
    def never_rebuilt(self) -> str:
        """Its answers are the only record of what was answered."""
        return (
            "its answers were given once, by something outside of the log that may answer otherwise today. To ask for "
            "every row again, declare another enrichment under a new name"
        )

    @property
    def fingerprint(self) -> dict[str, Any]:
        """What its tables are made of; how it asks may change, because each row tells when and by which version."""
        return {
            "stream": self.of.name,
            "event time": self.of.event_time,
            "rows": self.selected.fingerprint,
            "result": dict(self.result),
        }

    @property
    def delivers(self) -> tuple[str, ...]:
        """Its rows, of whichever output."""
        return ("rows",)

    def columns_of(self, suffix: str = "") -> tuple[ColumnSpec, ...]:
        """What is selected, the answer or why there is none, then where each row is from and when it was asked for."""
        selected = tuple(side_columns(self.reads, self.selected, self.types))
        if suffix == PENDING:
            return (*selected, *place_columns(), *pending_columns())
        asked = self.key or tuple(self.types)
        of = dict.fromkeys(one for spec in selected if spec.name in asked for one in spec.of)
        added = answer_columns(of, self.result) if suffix == "" else failure_columns()
        return (*selected, *added, *place_columns(), *asked_columns(answered=suffix == ""))

    @property
    def is_async(self) -> bool:
        """Whether the call is a coroutine function, or an object with such a one."""
        # Of an object, what its class defines as the call of it.
        return any(map(inspect.iscoroutinefunction, (self.call, type(self.call).__call__)))

    @property
    def opener(self) -> Callable[[], Any] | None:
        """What opens the client of the calls; None where there is nothing to open."""
        return self.opens or getattr(self.call, "opens", None)

    @property
    def selected(self) -> Side:
        """The columns that are handed to the call and written with the answer."""
        return Side(self.select)

    @cached_property
    def types(self) -> dict[str, str | None]:
        """The Spark type of each column that is selected; None where only Spark knows it."""
        added: Types = {ORIGIN: self.of.source.origin, "_batch": "bigint", INGESTED_AT: "timestamp"}
        return check_side(f"enrichment {self.name!r}", self.selected, self.of.types, added)

    @cached_property
    def answer_schema(self) -> pa.Schema:
        """What a call answers with, in Arrow's types."""
        return answer_schema(self.result)
