"""The function of a co-group, called for each key and window in Spark's Python workers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from streaming.base import Encoder, FunctionError, computes_as_sql, encoder, from_micros, python_values, raised
from streaming.declare import CoGroupFunction, described
from streaming.joins.windows_rows import LEFT, RIGHT
from streaming.keyed import row_class


@dataclass(frozen=True)
class CallPerWindow:
    """Give the results of groups: those of their columns that are `kept`, then the columns of `results`.

    `name` is that of the co-group.
    """

    name: str
    function: CoGroupFunction
    keys: tuple[str, ...]
    kept: tuple[str, ...]
    results: pa.Schema

    @computes_as_sql
    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield self._of_groups(batch)

    def _of_groups(self, groups: pa.RecordBatch) -> pa.RecordBatch:
        kind = pa.struct(list(self.results))
        encode = encoder(kind)
        keys = _rows(self.keys, (python_values(groups.column(name)) for name in self.keys))
        bounds = (python_values(groups.column(name)) for name in ("window_start", "window_end"))
        sides = (map(_as_rows, python_values(groups.column(name))) for name in (LEFT, RIGHT))
        results: list[Any] = []
        places: list[int] = []
        for place, given in enumerate(zip(keys, *bounds, *sides, strict=True)):
            given_back = self._called(encode, *given)
            results += given_back
            places += [place] * len(given_back)
        values = pa.RecordBatch.from_struct_array(pa.array(results, kind))
        kept = groups.select(list(self.kept)).take(pa.array(places, pa.int64()))
        return pa.RecordBatch.from_arrays([*kept.columns, *values.columns], names=[*self.kept, *self.results.names])

    def _called(self, encode: Encoder, key: Any, start: int, end: int, left: list[Any], right: list[Any]) -> list[Any]:
        try:
            given = list(self.function(key, start, end, left, right))
            if any(each is None for each in given):
                raise ValueError("it gave None in place of a result")
            return [encode(each) for each in given]
        # Whatever a user's function raises is told with the key and window that it was called for.
        except Exception as error:
            values = ", ".join(f"{name}={value!r}" for name, value in zip(self.keys, key, strict=True))
            raise FunctionError(
                f"function {described(self.function)} of co-group {self.name!r} failed for ({values}) and the window "
                f"from {from_micros(start)} to {from_micros(end)}: {raised(error)}. Nothing of its step was written; "
                "correct it and run again."
            ) from error


def _as_rows(rows: list[dict[str, Any]]) -> list[Any]:
    if not rows:
        return []
    as_row = partial(tuple.__new__, row_class(tuple(rows[0])))
    return [as_row(row.values()) for row in rows]


def _rows(names: tuple[str, ...], columns: Iterable[list[Any]]) -> Iterator[Any]:
    return map(partial(tuple.__new__, row_class(names)), zip(*columns, strict=True))
