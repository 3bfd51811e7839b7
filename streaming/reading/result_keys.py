"""The keys and windows of which there are current results: how many, and a few of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from streaming.base import StreamingError
from streaming.declare import Operator, Pipeline
from streaming.lake import Lake
from streaming.reading.conditions import quoted
from streaming.reading.selection import new_database
from streaming.reading.stored import stored_rows

_FEW = 3
_WINDOW = "window_start"


@dataclass(frozen=True)
class ResultKeys:
    """The keys of some results: `number` different values of the `columns`, of which `few` are the first ones.

    `times` are the different windows in it, or other instants (`of_windows` is false then), from `first` to `last`; 0,
    and None, where there is none in it.
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
    if {*operator.explained_by} >= {*operator.columns}:
        return None
    try:
        rows = stored_rows(lake, pipeline, operator)
    except StreamingError:
        return None
    if rows is None:
        return None
    schema = rows.source.schema
    names = [name for name in operator.explained_by if name in schema.names]
    times = [name for name in names if pa.types.is_timestamp(schema.field(name).type)]
    columns = [name for name in names if name not in times]
    if not names:
        return None
    with new_database() as database:
        database.register("rows", rows.source)

        def different(of: list[str]) -> str:
            return f"(select distinct {', '.join(map(quoted, of))} from rows where {rows.condition})"

        def first_rows(query: str) -> list[dict[str, Any]]:
            return list(database.sql(query).to_arrow_table().to_pylist())

        def number(of: list[str]) -> int:
            return int(first_rows(f"select count(*) as number from {different(of)}")[0]["number"]) if of else 0

        few = first_rows(f"from {different(columns)} order by all limit {_FEW}") if columns else []
        span = f"min({quoted(times[0])}) as first, max({quoted(times[-1])}) as last" if times else ""
        reach = first_rows(f"select {span} from {different(times)}")[0] if times else {"first": None, "last": None}
        return ResultKeys(
            tuple(columns),
            number(columns),
            tuple(few),
            number(times),
            _WINDOW in times,
            reach["first"],
            reach["last"],
        )
