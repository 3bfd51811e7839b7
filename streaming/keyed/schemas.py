"""The columns of a keyed function's tables."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from streaming.base import AT, DAY, WRITTEN_AT, DeclarationError
from streaming.declare import STATE, Keyed, Stream
from streaming.keyed.state_table import DUE, HASH, TIMERS

_TIME = pa.timestamp("us", "UTC")


def table_schemas(keyed: Keyed, log: DataFrame) -> dict[str, pa.Schema]:
    """The columns of each table without the day, by its suffix; `log` tells the types of the keys."""
    keys = key_schema(keyed, log)
    outputs = {
        to: pa.schema([*keys, pa.field(AT, _TIME), *schema, pa.field(WRITTEN_AT, _TIME)])
        for to, schema in keyed.output_schemas.items()
    }
    return {**outputs, STATE: state_schema(keyed, keys)}


def state_schema(keyed: Keyed, keys: pa.Schema) -> pa.Schema:
    """The columns of the state, of keys with these columns.

    Those of which a step asks for bounds come first, as Delta keeps bounds of the first columns of a table alone.
    """
    first = [pa.field(HASH, pa.int64()), pa.field(DUE, _TIME)]
    return pa.schema([*first, *keys, *keyed.state_schema, pa.field(TIMERS, pa.map_(pa.string(), _TIME))])


def key_schema(keyed: Keyed, log: DataFrame) -> pa.Schema:
    """The key columns, of the types that they have in the `log`."""
    names = [f"`{name}`" for name in keyed.by]
    return to_arrow_schema(log.select(*names).schema, timezone="UTC") if names else pa.schema([])


def spark_schema(schema: pa.Schema, partitioned: bool) -> StructType:
    """The columns as Spark knows them, with the day where the table is partitioned by it."""
    day = [pa.field(DAY, pa.date32())] if partitioned else []
    return from_arrow_schema(pa.schema([*schema, *day]), prefer_timestamp_ntz=True)


def type_of(what: str, of: Stream, column: str) -> str:
    """The Spark type in which values of a column are kept.

    Raises:
        DeclarationError: there is no such column, or its type is not known; the text names those whose types are.
    """
    types = _kept_types(of)
    if column not in types:
        raise DeclarationError(
            f"{what} is {column!r}, which is no column of stream {of.name!r} whose type is known; these are: "
            f"{', '.join(types)}. Derive it with a cast, such as cast(... as double)."
        )
    return types[column]


@dataclass(frozen=True)
class CopiesRows(ABC):
    """A function that emits whole rows of its stream, of which it takes the `columns`, as they came.

    Where a column is added to the stream, older rows have null there in the log, and so they have in its results.
    """

    columns: tuple[str, ...]

    @abstractmethod
    def __call__(self, key: Any, row: Any) -> None:
        """Take a row of a key, as `Keyed.on_row` says."""


def row_types(what: str, of: Stream, by: tuple[str, ...]) -> dict[str, str]:
    """The columns of a whole row but for its key, each with the type in which it is kept.

    Raises:
        DeclarationError: the type of one is not known.
    """
    return {column: type_of(what, of, column) for column in of.columns if column not in by}


def _kept_types(of: Stream) -> dict[str, str]:
    """The columns whose types are known, each with the type in which it is kept."""
    types = {**of.types, of.event_time: "timestamp"}
    # A float would be rounded in the state, and is exact as a double.
    return {name: re.sub(r"\bfloat\b", "double", kind) for name, kind in types.items() if kind is not None}


def ddl(types: dict[str, str], prefix: str = "") -> str:
    """The columns as Spark DDL, each name behind `prefix`."""
    return ", ".join(f"`{prefix}{name}` {kind}" for name, kind in types.items())


def struct_of(types: dict[str, str]) -> str:
    """The type of a struct of these columns."""
    return f"struct<{', '.join(f'`{name}`: {kind}' for name, kind in types.items())}>"
