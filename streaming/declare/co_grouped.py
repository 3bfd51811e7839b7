"""The declaration of a co-group: a function of the rows that two streams have for one key and window."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from streaming.base import arrow_schema, check_number, columns_of
from streaming.declare.columns import ColumnSpec
from streaming.declare.functions import check_callable, described
from streaming.declare.two_sided import TwoSided

CoGroupFunction = Callable[[Any, int, int, list[Any], list[Any]], Iterable[Mapping[str, Any]]]
"""`(key, window_start, window_end, left_rows, right_rows)` to results."""


@dataclass(frozen=True)
class CoGrouped(TwoSided):
    """The results that `function` gives for all rows of `left` and `right` with the same key in the same window.

    `function(key, window_start, window_end, left_rows, right_rows)` is called once for each key and window in which
    one of the streams has a row; one of the two lists may be empty. The key has the key columns as attributes, a row
    those of its stream; rows come in order of event time, then of their log. Times are whole microseconds since the
    epoch. It gives mappings from the columns that `result` declares (Spark DDL, such as
    `both bigint`) to values, null for those left out: none, one or many. Null is a key like any other. Semantics as
    Flink's `coGroup`.

    It must depend on nothing but its arguments, and Spark's Python workers, which hold the rows of one key and window
    in memory, must be able to import it. Raise `version` when it gives other results for the same rows: tables of
    another version are then refused until they are rebuilt.

    Which rows are on time, when results are published and what `late` means: see `WindowJoined`. A correction for
    which the function gives nothing makes void what was published of the key and window.

    Raises:
        DeclarationError: an unknown column, keys that cannot be equal, a name that is taken, a policy that there is
            not, or a function that cannot be found by its name.
    """

    result: str
    function: CoGroupFunction
    version: int = 1

    kind_name = "co-group"

    def __post_init__(self) -> None:
        self._check_inputs()
        arrow_schema(self.result)
        check_callable(f"function of co-group {self.name!r}", self.function)
        check_number(f"version={self.version!r} of co-group {self.name!r}", self.version, "version")
        self._check_values()

    @property
    def values(self) -> tuple[str, ...]:
        """The columns that the function gives."""
        return tuple(column.name for column in columns_of(self.result))

    def value_columns(self) -> tuple[ColumnSpec, ...]:
        """The columns that the function gives: it is handed whole rows, so that each may follow from every column."""
        rows = ((side.stream.name, name) for side in self.sides for name in side.stream.columns)
        everything = tuple(dict.fromkeys(rows))
        meaning = f"Result of `{described(self.function)}`."
        return tuple(
            ColumnSpec(column.name, f"{meaning} {column.comment}".strip(), column.type, everything)
            for column in columns_of(self.result)
        )

    @property
    def fingerprint(self) -> dict[str, Any]:
        """All but what says when results appear, and whether late rows are left out: that changes no result."""
        function = f"{described(self.function)} version {self.version}"
        return {**super().fingerprint, "function": function, "function's results": self.result}
