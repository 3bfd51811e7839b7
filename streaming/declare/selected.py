"""The declaration of a selection: rows of streams, projected, filtered, exploded, split and brought together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from streaming.base import (
    INGESTED_AT,
    ORIGIN,
    DeclarationError,
    FrozenMapping,
    Types,
    check_column_name,
    check_name,
    columns_of,
    interval,
)
from streaming.declare.columns import ColumnSpec
from streaming.declare.functions import RowFunction
from streaming.declare.on_error import OnError, check_on_error
from streaming.declare.operator import Operator, TableSpec
from streaming.declare.selected_checks import check_selected_types, check_side, check_side_names
from streaming.declare.selected_columns import added_columns, failed_columns, function_columns, side_columns
from streaming.declare.side import Side
from streaming.declare.stream import Stream
from streaming.declare.suffixes import FAILED


@dataclass(frozen=True)
class Selected(Operator):
    """The valid rows of the stream `of`, or of several, one by one: a derived stream without state.

    `select`, `where` and `explode` say what goes into its own table (see `Side`), and `sides` the same of further
    outputs, each a table with columns of its own; all are filled in one pass over the log. Their SQL may also read
    `_origin`, `_batch`, `_ingested_at` and `_watermark` (the stamp). Rows of several streams are brought together as
    they are, in no order and with copies; SQL then reads what all of them have.

    `function` is called for each row of its own table and says what becomes of it. A row is selected whether it came
    late or not. What a filter removes was judged and stays in the log; each commit counts it.

    `on_error="side"` sends a row for which SQL of any output, or the function, cannot be computed to the side output
    `failed`, with the error and the row as JSON; the other outputs are as if it had never come.

    Beside its columns a table has `_at` (event time), `_batch`, `_origin` (of several streams a field for each) and,
    where a row may become several, `_element`, their number.

    Raises:
        DeclarationError: an unknown column, a condition that is none, or a name that is taken.
    """

    name: str
    of: Stream | tuple[Stream, ...]
    select: tuple[str, ...] | Mapping[str, str] | None = None
    where: str | None = None
    explode: Mapping[str, str] | None = None
    sides: Mapping[str, Side] = field(default_factory=dict)
    function: RowFunction | None = None
    description: str = ""
    every: str | None = None
    on_error: OnError = "pause"

    kind_name = "selection"

    def __post_init__(self) -> None:
        check_name(self.kind_name, self.name)
        check_selected_types(vars(self))
        object.__setattr__(self, "sides", FrozenMapping(self.sides))
        for name in ("select", "explode"):
            object.__setattr__(self, name, getattr(self.outputs[""], name))
        check_side_names(self.name, self.sides)
        check_on_error(self.kind_name, self.name, self.on_error)
        if self.diverts and FAILED in self.sides:
            raise DeclarationError(
                f"selection {self.name!r} has a side output {FAILED!r} of its own beside on_error='side', which makes "
                "one of that name; rename it."
            )
        self._check_streams()
        if self.function is not None and self.explode is not None:
            raise DeclarationError(
                f"selection {self.name!r} has both explode and a function; let the function return several rows."
            )
        for column in columns_of(self.function.returns) if self.function is not None else ():
            check_column_name(column.name)
        if self.every is not None:
            interval(self.every)
        # Each output is checked as its types are told.
        _ = self.types

    def _check_streams(self) -> None:
        names = [stream.name for stream in self.reads]
        for name in names:
            if names.count(name) > 1:
                raise DeclarationError(f"selection {self.name!r} reads stream {name!r} twice; name each once.")
        whole = [to for to, side in self.outputs.items() if side.select is None]
        others = {stream.name: stream.columns for stream in self.reads if stream.columns != self.reads[0].columns}
        if whole and others:
            (name, columns), *_ = others.items()
            raise DeclarationError(
                f"selection {self.name!r} takes all columns of several streams, but those of {names[0]!r} are "
                f"{', '.join(self.reads[0].columns)}, and those of {name!r} are {', '.join(columns)}; select the "
                "columns that both have."
            )

    @property
    def reads(self) -> tuple[Stream, ...]:
        """The streams."""
        return self.of if isinstance(self.of, tuple) else (self.of,)

    @property
    def outputs(self) -> dict[str, Side]:
        """What goes into each of its tables, by its suffix: "" for its own."""
        return {"": Side(self.select, self.where, self.explode), **self.sides}

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        """Its own, one for each side output, and one for rows that cannot be computed where that is declared."""
        about = f": {self.description}" if self.description else ""
        return (
            TableSpec("", f"Rows of selection {self.name}{about}"),
            *(TableSpec(to, f"Side output {to} of selection {self.name}", is_result=False) for to in self.sides),
            *([TableSpec(FAILED, f"Rows that selection {self.name} cannot compute", is_result=False)] * self.diverts),
        )

    @property
    def fingerprint(self) -> dict[str, Any]:
        """All but what says when rows appear."""
        function = self.function
        return {
            "streams": [stream.name for stream in self.reads],
            "event time": [stream.event_time for stream in self.reads],
            "rows": self.outputs[""].fingerprint,
            "side output": {to: side.fingerprint for to, side in self.sides.items()},
            "function": None if function is None else f"{function.name} version {function.version}",
            "function's rows": None if function is None else function.returns,
            **self._diverted,
        }

    @property
    def delivers(self) -> tuple[str, ...]:
        """Its rows, of whichever output."""
        return ("rows",)

    def columns_of(self, suffix: str = "") -> tuple[ColumnSpec, ...]:
        """What is selected, then where each row is from."""
        if suffix == FAILED and self.diverts:
            return failed_columns(self.reads)
        if suffix not in self.outputs:
            return ()
        side = self.outputs[suffix]
        if suffix == "" and self.function is not None:
            values = function_columns(self.reads, side, self.function)
        else:
            values = side_columns(self.reads, side, self.types[suffix])
        return (*values, *added_columns(len(self.reads), self.makes_many(suffix)))

    def makes_many(self, suffix: str) -> bool:
        """Whether a row of the log may become several in this output."""
        explodes = suffix in self.outputs and self.outputs[suffix].explode is not None
        return explodes or (suffix == "" and self.function is not None)

    @cached_property
    def types(self) -> dict[str, dict[str, str | None]]:
        """The Spark type of each column that is selected, by output; None where only Spark knows it."""
        columns = {name: None for name in self.reads[0].types if all(name in stream.types for stream in self.reads)}
        types: Types = {name: _only(stream.types[name] for stream in self.reads) for name in columns}
        added: Types = {
            ORIGIN: self.reads[0].source.origin if len(self.reads) == 1 else None,
            "_batch": "bigint",
            INGESTED_AT: "timestamp",
            "_watermark": "timestamp",
        }
        return {
            to: check_side(f"{f'side output {to!r} of ' if to else ''}selection {self.name!r}", side, types, added)
            for to, side in self.outputs.items()
        }


def _only(types: Any) -> str | None:
    """The type that all of them are; None where they differ."""
    kinds = set(types)
    return kinds.pop() if len(kinds) == 1 else None
