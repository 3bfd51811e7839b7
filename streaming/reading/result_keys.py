"""The keys and windows of which there are current results: how many, and a few of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from streaming.base import StreamingError
from streaming.declare import Operator, Pipeline
from streaming.lake import Lake
from streaming.reading.conditions import quoted
from streaming.reading.selection import new_database
from streaming.reading.stored import StoredRows, stored_rows

_FEW = 3
_WINDOW, _WINDOW_END = "window_start", "window_end"


@dataclass(frozen=True)
class ResultKeys:
    """The keys of some results: `number` different values of the `columns`, of which `few` are the first ones.

    `times` are the different windows in it, or the values of the first instant in it (`of_windows` is false then), from
    `first` to `last`; 0, and None, where there is none in it.
    """

    columns: tuple[str, ...]
    number: int
    few: tuple[Mapping[str, Any], ...]
    times: int
    of_windows: bool
    first: datetime | None
    last: datetime | None


def result_keys(lake: Lake, pipeline: Pipeline, operator: Operator) -> ResultKeys | None:
    """The keys of the current results of an operator, read from the columns of the key alone, without Spark.

    The columns are those that the results there have: of a key that is declared otherwise by now none but what both
    have. None where results have no key, or are not stored as they are read.
    """
    # Where results have no key, each is explained by all that is selected.
    if {*operator.explained_by} >= {name for name in operator.columns if not name.startswith("_")}:
        return None
    try:
        rows = stored_rows(lake, pipeline, operator)
    except StreamingError:
        return None
    return None if rows is None else keys_in(rows, operator.explained_by)


def keys_in(rows: StoredRows, key: Sequence[str]) -> ResultKeys | None:
    """The keys of some rows by those columns of the `key` that they have; None where they have none."""
    schema = rows.source.schema
    names = [name for name in key if name in schema.names]
    times = [name for name in names if pa.types.is_timestamp(schema.field(name).type)]
    columns = [name for name in names if name not in times]
    if not names:
        return None
    window = [name for name in (_WINDOW, _WINDOW_END) if name in times]
    span = window or times[:1]
    told = {
        "number": f"count(distinct row({_listed(columns)}))" if columns else "0",
        # Only a window is of two instants, which are never null.
        "times": f"count(distinct {f'row({_listed(window)})' if window else _listed(span)})" if span else "0",
        "first": f"min({quoted(span[0])})" if span else "null",
        "last": f"max({quoted(span[-1])})" if span else "null",
    }
    with new_database() as database:
        database.register("rows", rows.source)

        def rows_told(query: str) -> list[dict[str, Any]]:
            return list(database.sql(query).to_arrow_table().to_pylist())

        values = ", ".join(f"{value} as {quoted(name)}" for name, value in told.items())
        (whole,) = rows_told(f"select {values} from rows where {rows.condition}")
        distinct = f"select distinct {_listed(columns)} from rows where {rows.condition} order by all limit {_FEW}"
        few = rows_told(distinct) if columns else []
    return ResultKeys(tuple(columns), few=tuple(few), of_windows=bool(window), **whole)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(quoted, names))
