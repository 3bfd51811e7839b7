"""The function of a co-group, called for each key and window in Spark's Python workers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from streaming.base import Encoder, FunctionError, computes_as_sql, encoder, from_micros, python_values, raised
from streaming.declare import CoGroupFunction, described
from streaming.keyed import row_class

LEFT, RIGHT = "_left", "_right"
"""The columns that hold the row of a pair, or in a group the rows, of either side."""

ERROR = "_error"
"""The column with why there are no results, beside columns that users have named."""


@dataclass(frozen=True)
class _PerWindow:
    """Calls the function of the co-group `name` with each group, of the key columns `keys`.

    Results have those columns of the groups that are `kept`.
    """

    name: str
    function: CoGroupFunction
    keys: tuple[str, ...]
    kept: tuple[str, ...]

    @computes_as_sql
    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield self._of_groups(batch)

    @abstractmethod
    def _of_groups(self, groups: pa.RecordBatch) -> pa.RecordBatch: ...

    def _each(self, groups: pa.RecordBatch, encode: Encoder) -> Iterator[list[Any] | FunctionError]:
        """The results of each group, or why it has none."""
        keys = _rows(self.keys, (python_values(groups.column(name)) for name in self.keys))
        bounds = (python_values(groups.column(name)) for name in ("window_start", "window_end"))
        sides = (map(_as_rows, python_values(groups.column(name))) for name in (LEFT, RIGHT))
        for given in zip(keys, *bounds, *sides, strict=True):
            yield self._called(encode, *given)

    def _called(
        self, encode: Encoder, key: Any, start: int, end: int, left: list[Any], right: list[Any]
    ) -> list[Any] | FunctionError:
        try:
            given = list(self.function(key, start, end, left, right))
            if any(each is None for each in given):
                raise ValueError("it gave None in place of a result")
            return [encode(each) for each in given]
        # Whatever a user's function raises is told with the key and window that it was called for.
        except (Exception, SystemExit) as error:
            values = ", ".join(f"{name}={value!r}" for name, value in zip(self.keys, key, strict=True))
            failed = FunctionError(
                f"function {described(self.function)} of co-group {self.name!r} failed for ({values}) and the window "
                f"from {from_micros(start)} to {from_micros(end)}: {raised(error)}. Nothing of its step was written; "
                "correct it and run again, or send such windows to a side output with on_error='side'."
            )
            failed.__cause__ = error
            return failed

    def _beside(self, groups: pa.RecordBatch, places: list[int], values: pa.RecordBatch) -> pa.RecordBatch:
        """`values`, with what is kept of the group at the place of each."""
        kept = groups.select(list(self.kept)).take(pa.array(places, pa.int64()))
        return pa.RecordBatch.from_arrays([*kept.columns, *values.columns], names=[*self.kept, *values.schema.names])


@dataclass(frozen=True)
class CallPerWindow(_PerWindow):
    """Gives the results of groups, in the columns of `results`.

    Where it `leaves_out` groups for which the function fails these have no results, else it raises.
    """

    results: pa.Schema
    leaves_out: bool = False

    def _of_groups(self, groups: pa.RecordBatch) -> pa.RecordBatch:
        kind = pa.struct(list(self.results))
        results: list[Any] = []
        places: list[int] = []
        for place, given in enumerate(self._each(groups, encoder(kind))):
            if isinstance(given, FunctionError):
                if self.leaves_out:
                    continue
                raise given
            results += given
            places += [place] * len(given)
        return self._beside(groups, places, pa.RecordBatch.from_struct_array(pa.array(results, kind)))


@dataclass(frozen=True)
class ErrorPerWindow(_PerWindow):
    """Gives for each group for which there are no `results` the `_error`."""

    results: pa.Schema

    def _of_groups(self, groups: pa.RecordBatch) -> pa.RecordBatch:
        errors: list[str] = []
        places: list[int] = []
        for place, given in enumerate(self._each(groups, encoder(pa.struct(list(self.results))))):
            if isinstance(given, FunctionError):
                assert isinstance(given.__cause__, Exception)
                errors.append(raised(given.__cause__))
                places.append(place)
        return self._beside(groups, places, pa.RecordBatch.from_pydict({ERROR: pa.array(errors, pa.string())}))


def _as_rows(rows: list[dict[str, Any]]) -> list[Any]:
    if not rows:
        return []
    as_row = partial(tuple.__new__, row_class(tuple(rows[0])))
    return [as_row(row.values()) for row in rows]


def _rows(names: tuple[str, ...], columns: Iterable[list[Any]]) -> Iterator[Any]:
    return map(partial(tuple.__new__, row_class(names)), zip(*columns, strict=True))
