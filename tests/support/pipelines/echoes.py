"""Rows with the extremes of every declared type, and a function of each kind that hands on what it is given."""

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from streaming import (
    BoundedOutOfOrderness,
    CoGrouped,
    Enriched,
    Files,
    Json,
    Keyed,
    LookupRequest,
    Pipeline,
    RowFunction,
    Selected,
    Stream,
    Tumbling,
    Windowed,
    WindowFunction,
)

TYPES = {
    "small": "tinyint",
    "whole": "bigint",
    "single": "float",
    "number": "double",
    "amount": "decimal(38, 18)",
    "flag": "boolean",
    "until": "timestamp",
    "day": "date",
    "text": "string",
    "bytes": "binary",
    "nested": "array<struct<v: double, at: timestamp, day: date, n: bigint>>",
    "tags": "map<string, decimal(38, 0)>",
}
_EXTREMES = {
    "small": "-128Y",
    "whole": "9007199254740993L",
    "single": "cast('NaN' as float)",
    "number": "cast('NaN' as double)",
    "amount": "12345678901234567890.123456789012345678BD",
    "flag": "false",
    "until": "timestamp'9999-12-31 23:59:59.999999'",
    "day": "date'9999-12-31'",
    "text": "'é☃'",
    "bytes": "X'ff00'",
    "nested": (
        "array(named_struct('v', cast('NaN' as double), 'at', timestamp'9999-12-31 23:59:59.999999', 'day', "
        "date'9999-12-31', 'n', 9007199254740993L), null, "
        "named_struct('v', null, 'at', null, 'day', null, 'n', null))"
    ),
    "tags": "map('most', 99999999999999999999999999999999999999BD, 'none', null)",
}
_LEAST = {
    "small": "127Y",
    "whole": "-9223372036854775807L - 1L",
    "single": "cast('-Infinity' as float)",
    "number": "-0.0D",
    "amount": "-0.000000000000000001BD",
    "flag": "true",
    "until": "timestamp'0001-01-01 00:00:00'",
    "day": "date'0001-01-01'",
    "text": "''",
    "bytes": "X''",
    "nested": "array()",
    "tags": "map()",
}


def _derived(name: str, kind: str) -> str:
    extreme, least = (f"cast({values[name]} as {kind})" for values in (_EXTREMES, _LEAST))
    return f"case what when 'extreme' then {extreme} when 'least' then {least} end"


echoes = Stream(
    name="echoes",
    source=Files("landing/echoes"),
    format=Json("id string, what string, at timestamp"),
    derived={name: _derived(name, kind) for name, kind in TYPES.items()},
    event_time="at",
    clock=BoundedOutOfOrderness("0 seconds"),
)

NAMES = tuple(TYPES)
DDL = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())


def of_window(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows as they are."""
    return rows


def of_key(key: Any, row: Any) -> None:
    """Emits what it keeps, which is the row that came before, and keeps this one."""
    if key.kept is not None:
        key.emit(**key.kept)
    key.kept = {name: row[name] for name in KEPT}


def of_groups(key: Any, start: int, end: int, left: list[Any], right: list[Any]) -> Iterable[Mapping[str, Any]]:
    """The rows of the left side as they are."""
    return [{name: row[name] for name in ("what", *NAMES)} for row in left]


def of_row(row: Any, opened: Any) -> Iterable[Mapping[str, Any]]:
    """The row as it is."""
    return [{name: row[name] for name in ("what", *NAMES)}]


async def of_call(row: Any, request: LookupRequest) -> Mapping[str, Any]:
    """The row as it is, under other names."""
    return {f"e_{name}": row[name] for name in NAMES}


KEPT = tuple(name for name, kind in TYPES.items() if kind != "float")
_KEPT_DDL = ", ".join(f"{name}: {TYPES[name]}" for name in KEPT)

returned = f"what string, {DDL}"
windows = Windowed("windows", echoes, Tumbling("1 hour"), by=("id",), function=WindowFunction(of_window, returned))
keys = Keyed(
    name="keys",
    of=echoes,
    by=("what",),
    state=f"kept struct<{_KEPT_DDL}>",
    result=", ".join(f"{name} {TYPES[name]}" for name in KEPT),
    on_row=of_key,
)
groups = CoGrouped("groups", echoes, echoes, ("id",), Tumbling("1 hour"), returned, of_groups)
rows = Selected("rows", echoes, function=RowFunction(of_row, returned))
calls = Enriched("calls", echoes, of_call, {f"e_{name}": kind for name, kind in TYPES.items()}, timeout="60 seconds")

pipeline = Pipeline(echoes, (windows, keys, groups, rows, calls))
