"""The declaration of a delivery: rows of a table of the lake that are carried on to a target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from streaming.base import DeclarationError, check_name, check_names, check_not_reserved, interval, settle
from streaming.declare.delivered import CHANGES, DEAD, DEAD_LETTER, OFFERS, PROGRESS, What
from streaming.declare.operator import Operator
from streaming.declare.stream import Stream
from streaming.sinks import RESULT_ID, Guarantee, Target


@dataclass(frozen=True)
class Delivery:
    """Rows of `of` carried to the target `to`, in numbered batches, in order, each exactly as its table has them.

    `what`: of a stream its valid `rows` (the default), those `rejected`, or those that came `late`; of a view its
    `first` results (the default), `late` pairs, or `current`: changes of what is current, as upserts with `_revision`
    and `_reason` (`first`, `update`, `correction`), and deletes of what vanished; of a window join or a co-group its
    `first` results or what is `current`; of a selection, an enrichment or a keyed function its `rows`, or with `output`
    those of a side output, and of a function whose late rows are corrected what is `current`; of a join its pairs, or
    with `output="unmatched"` the rows that had none in time, and of one that tells of such rows what is `current`;
    of another delivery its `dead` letters, each attempt that was refused
    once, as soon as its batch is done: those that `redeliver` has brought there before are not told.

    `select` names the columns, or maps names to SQL over them; left out, all that the stream or view declares. `where`
    is a condition on them; of what is `current` a result for which it does not hold any more is deleted. `key`: the
    columns of which the target keeps one row each; left out, the target's own, and for `current` what identifies a
    result: of a join, whose results have no key, the text `_result_id`, which then comes with each; of results of a
    join that share a `key` the latest is told. A batch has at most `batch` rows, and waits at most `every` (an
    interval) for more; left out, what the target says.

    `guarantee`: what the delivery relies on; a target that promises less is refused. Left out, the target's own.

    Dead letters, which the target refused row by row or for which `select` or `where` fails, are in the table
    `<name>_dead`.

    Raises:
        DeclarationError: there is no such thing to deliver, an unknown column, or a target that cannot take it.
    """

    name: str
    of: Stream | Operator | Delivery
    to: Target
    what: What | None = None
    select: tuple[str, ...] | Mapping[str, str] | None = None
    where: str | None = None
    key: tuple[str, ...] = ()
    every: str | None = None
    batch: int | None = None
    guarantee: Guarantee | None = None
    description: str = ""
    output: str = ""

    kind_name = "delivery"
    delivers: ClassVar[tuple[What, ...]] = OFFERS[kind_name]

    def __post_init__(self) -> None:
        check_name("delivery", self.name)
        named = f"of delivery {self.name!r}"
        settle(self, f"delivery {self.name!r}")
        kind, valid = self.of.kind_name, self.of.delivers
        if self.what is None:
            object.__setattr__(self, "what", valid[0])
        if self.what not in valid:
            others = [f"a {other}" for other, offered in OFFERS.items() if other != kind and self.what in offered]
            hint = f" Of {' or '.join(others)} it can be." if others else ""
            one = f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
            raise DeclarationError(
                f"what={self.what!r} {named} is nothing that {one} has",
                f"use {', '.join(map(repr, valid))}.{hint}",
                field="what",
                value=self.what,
                choices=tuple(valid),
            )
        self._check_output()
        if self.batch is not None and self.batch < 1:
            raise DeclarationError(
                f"batch={self.batch!r} {named} delivers nothing", "use 1 or more.", field="batch", value=self.batch
            )
        if self.every is not None:
            interval(self.every)
        if self.guarantee is None:
            object.__setattr__(self, "guarantee", self.to.guarantee)
        if self.guarantee == "exactly once" and self.to.guarantee != "exactly once":
            raise DeclarationError(
                f"guarantee={self.guarantee!r} {named} is more than {type(self.to).__name__} can promise, which is "
                f"{self.to.guarantee!r}: a batch may come twice, under one key.",
                "Use a transactional or idempotent "
                "target, or leave the guarantee out and let whoever reads drop what it has.",
                field="guarantee",
                value=self.guarantee,
            )
        self._check_select()
        self._check_key()

    def _check_output(self) -> None:
        tables = self.of.streamed if isinstance(self.of, Operator) and self.what == "rows" else ()
        outputs = [table.suffix for table in tables if table.suffix]
        if self.output and self.output not in outputs:
            raise DeclarationError(
                f"output={self.output!r} of delivery {self.name!r} is no side output of {self.of.name!r}, which has: "
                f"{', '.join(outputs) or 'none'}.",
                "Correct it, or leave it out.",
                field="output",
                value=self.output,
                delivery=self.name,
                choices=tuple(outputs),
            )

    def _check_select(self) -> None:
        named = f"of delivery {self.name!r}"
        if self.select is not None and not self.select:
            raise DeclarationError(f"select {named} names no column", "leave it out to deliver all.")
        for name in self.select or ():
            check_not_reserved(name)
        readable = self.readable
        for name, expression in self.selected.items():
            check_names(f"column {name!r} {named}", expression, readable)
        if self.where is not None:
            check_names(f"where {named}", self.where, readable)

    def _check_key(self) -> None:
        named = f"of delivery {self.name!r}"
        key = self.identity
        for name in key:
            if name not in self.selected:
                raise DeclarationError(
                    f"key {name!r} {named} is not delivered; columns are: {', '.join(self.selected)}.",
                    "Select it, or correct the key.",
                    choices=tuple(self.selected),
                )
        if self.what == "current" and not self.to.takes_changes:
            raise DeclarationError(
                f"what='current' {named} sends upserts and deletes, which {type(self.to).__name__} cannot take",
                "use 'first', or a target that keeps keys.",
            )
        for name in self.to.reads:
            if name not in self.selected:
                raise DeclarationError(
                    f"column {name!r}, which {type(self.to).__name__} {named} needs, is not delivered; columns are: "
                    f"{', '.join(self.selected)}.",
                    "Select it, or correct the target.",
                    column=name,
                    choices=tuple(self.selected),
                )
        if key and self.what != "current" and not self.to.keeps_keys:
            raise DeclarationError(
                f"key={key!r} {named} asks {type(self.to).__name__} to keep one row per key, which it cannot",
                "leave it out, or deliver what='current', whose rows carry key and revision.",
                field="key",
                value=key,
            )

    @property
    def selected(self) -> Mapping[str, str]:
        """The columns that are delivered, each with its SQL."""
        named = {RESULT_ID: RESULT_ID} if RESULT_ID in self.identity else {}
        if isinstance(self.select, Mapping):
            return {**self.select, **named}
        if self.select is not None:
            return {name: f"`{name}`" for name in self.select} | named
        if self.what == "rejected":
            return {
                "payload": "_raw",
                "reasons": "_rejected",
                "origin": "_origin",
                "batch": "_batch",
                "ingested_at": "_ingested_at",
            }
        return {name: f"`{name}`" for name in self._declared} | named

    @property
    def readable(self) -> tuple[str, ...]:
        """The columns that SQL of the delivery may read."""
        of_log = ("_batch", "_origin", "_ingested_at", "_watermark", "_raw", "_rejected", "_day")
        if isinstance(self.of, Operator) and self.what == "rows":
            return tuple(spec.name for spec in self.of.columns_of(self.output))
        if self.what == "current":
            own = dict.fromkeys((*self._declared, *getattr(self.of, "columns", ())))
            return (*own, "_day", *([RESULT_ID] if RESULT_ID in self.identity else []))
        if self.what == "first":
            return (*self._declared, "_day")
        if self.what == "dead":
            return self._declared
        return (*self._declared, *of_log)

    @property
    def _declared(self) -> tuple[str, ...]:
        if isinstance(self.of, Stream):
            return self.of.columns
        if isinstance(self.of, Delivery):
            return DEAD_LETTER
        own = tuple(spec.name for spec in self.of.columns_of(self.output) if not spec.name.startswith("_"))
        return own if self.what != "late" else ("window_start", "window_end", *self.of.reads[0].columns)

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns of which the target keeps one row each; none where it keeps every row."""
        key = self.key or self.to.key
        if key or self.what != "current" or not isinstance(self.of, Operator):
            return key
        return self.of.result_key or (RESULT_ID,)

    @property
    def most_rows(self) -> int:
        """The most rows of a batch."""
        return self.to.batch if self.batch is None else self.batch

    @property
    def waits(self) -> str | None:
        """The longest time that rows wait for a batch to be full; None: not at all."""
        return self.to.flush if self.every is None else self.every

    @property
    def origin(self) -> Delivery:
        """The delivery whose dead letters come to this one in the end, or this one itself."""
        return self.of.origin if isinstance(self.of, Delivery) else self

    @property
    def sends_log(self) -> bool:
        """True if valid rows of a log go out as they came, or dead letters of such."""
        origin = self.origin
        # An operator whose own rows take back others delivers what is current alone.
        return origin.what == "late" or (origin.what == "rows" and not isinstance(origin.of, Operator))

    @property
    def reads(self) -> tuple[Stream, ...]:
        """The streams that its rows come from in the end."""
        return self.of.reads

    @property
    def stream(self) -> Stream:
        """The stream beside whose log its tables lie."""
        return self.reads[0]

    @property
    def depth(self) -> int:
        """The number of deliveries that lie before it: 1 for one of dead letters."""
        return self.of.depth + 1 if isinstance(self.of, Delivery) else 0

    @property
    def folder(self) -> str:
        """Where its tables lie."""
        return self.stream.name

    @property
    def reserved_suffixes(self) -> tuple[str, ...]:
        """The suffixes that it may ever append to its name."""
        return (DEAD, CHANGES, PROGRESS)

    def table_name(self, suffix: str) -> str:
        """The name of the table with this suffix."""
        return f"{self.name}_{suffix}"

    @property
    def fingerprint(self) -> dict[str, Any]:
        """The facts that numbers and places of its rows follow from; the selection may change from batch to batch."""
        output = {"output": self.output} if self.output else {}
        # Which results share a key decides which of them are told.
        told_by_key = self.what == "current" and isinstance(self.of, Operator) and not self.of.result_key
        key = {"key": {name: self.selected[name] for name in self.identity}} if told_by_key else {}
        return {"of": self.of.name, "what": self.what, "where": self.where, **output, **key}
