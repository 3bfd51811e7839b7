"""The audit of a keyed function: what is stored, against the function over the whole log in one go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import ViewError, literal, optional_micros
from streaming.declare import STATE, Keyed
from streaming.keyed.frame import in_order, is_on_time
from streaming.keyed.key import NEVER
from streaming.keyed.schemas import WRITTEN_AT, no_rows, spark_schema, table_schemas
from streaming.keyed.tasks import RowsOf
from streaming.lake import Lake
from streaming.log import valid
from streaming.operators import Finding, LogAtVersion, differing_rows, open_beside
from streaming.tables import delta
from streaming.views import Position


@dataclass(frozen=True)
class PinnedKeyed:
    """The tables of a keyed function at versions of one moment, by suffix; `delta.BEFORE` for those not there."""

    keyed: Keyed
    versions: Mapping[str, int]

    @classmethod
    def now(cls, lake: Lake, keyed: Keyed) -> PinnedKeyed:
        """As it is now."""
        own = delta.open_table(lake.table(keyed))
        tables = {
            spec.suffix: open_beside(own, lake.table(keyed, spec.suffix)) if spec.suffix else own
            for spec in keyed.tables
        }
        return cls(keyed, {to: delta.BEFORE if table is None else table.version() for to, table in tables.items()})


def audit_keyed(spark: SparkSession, lake: Lake, pinned: PinnedKeyed, log: LogAtVersion) -> Iterator[Finding]:
    """The laws: each table holds what the function over the whole log gives, however the log was cut into steps.

    Raises:
        ViewError: nothing is computed yet.
    """
    keyed = pinned.keyed
    if pinned.versions[""] == delta.BEFORE:
        raise ViewError(
            f"keyed function {keyed.name!r} has computed nothing yet at {lake.table(keyed)!r}; run `tidemark run "
            f"{keyed.of.name}` first."
        )
    schemas = table_schemas(keyed, log.rows)
    for suffix, version in pinned.versions.items():
        uri = lake.table(keyed, suffix)
        at = Position.of(delta.open_table(uri, version))
        columns = [name for name in schemas[suffix].names if name != WRITTEN_AT]
        if suffix == STATE:
            columns = [*keyed.by, *keyed.state_schema.names]
        if not columns:
            continue
        nothing = no_rows(spark, schemas[STATE])
        schema = pa.schema([schemas[suffix].field(name) for name in columns])
        computed = _computed(keyed, nothing, log.rows, at, suffix, schema)
        stored = delta.read(spark, uri, version).select(*(f"`{name}`" for name in columns))
        name, differing = keyed.table_name(suffix), differing_rows(stored, computed)
        yield Finding("cuts", name, stored.count(), differing, f"{suffix or 'results'}: computed again, equal")


def _computed(
    keyed: Keyed, state: DataFrame, log: DataFrame, at: Position, suffix: str, schema: pa.Schema
) -> DataFrame:
    rows = valid(log).where(F.col("_batch") <= at.batch)
    if keyed.order == "event":
        rows = rows.where(is_on_time(keyed) & (F.col(keyed.of.event_time) < literal(at.watermark)))
    clock = optional_micros(at.watermark)
    task = RowsOf(keyed, NEVER if clock is None else clock, suffix, schema)
    return in_order(keyed, state, rows).mapInArrow(task, spark_schema(schema, partitioned=False))
