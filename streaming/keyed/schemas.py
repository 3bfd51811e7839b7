"""The columns of a keyed function's tables."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from streaming.base import AT, DAY, WRITTEN_AT
from streaming.declare import STATE, Keyed
from streaming.keyed.state_columns import DUE, HASH, TIMERS

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
