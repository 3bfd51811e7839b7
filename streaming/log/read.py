"""Reads of the event log: its rows, the valid ones, the dead letters, and what other streams follow."""

from __future__ import annotations

from functools import partial

from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import INGESTED_AT, ORIGIN, DeclarationError, LogError
from streaming.declare import Stream
from streaming.lake import Lake
from streaming.log.retention import check_as_of, dropped_before, dropped_rows
from streaming.sources import PlacedRows, Source, placed_rows
from streaming.tables import delta

REPAIRS = "repairs"
"""Field of `_origin`: the batch of the rejected row that a row repairs; null for the others."""


def read_log(spark: SparkSession, lake: Lake, stream: Stream, version: int | None = None) -> DataFrame:
    """The log as a batch frame, at one Delta `version` or the newest, up to the batch as of which the lake is read.

    Raises:
        LogError: nothing has been ingested yet, or it cannot be told any more what there was by that batch.
    """
    require_log(lake, stream)
    check_as_of(lake, stream)
    rows, newest = delta.read(spark, lake.log(stream), version), lake.batch_read(stream)
    return rows if newest is None else rows.where(F.col("_batch") <= newest)


def require_log(lake: Lake, stream: Stream) -> None:
    """Refuse where nothing has been ingested yet.

    Raises:
        LogError: with the command that does.
    """
    uri = lake.log(stream)
    if not delta.exists(uri):
        raise LogError(
            f"stream {stream.name!r} has no event log at {uri!r} yet; run `tidemark run {stream.name}` first, or "
            "point TIDEMARK_HOME to the lake that has it."
        )


def valid(log: DataFrame) -> DataFrame:
    """The valid rows."""
    return log.where(F.col("_day").isNotNull())


def rejected(log: DataFrame) -> DataFrame:
    """The rejected rows that were not repaired: the dead letters, with payload and reasons."""
    origin = F.col("_origin")
    repairs = repaired(log).select(place(origin).alias("_place"), origin[REPAIRS].alias("_repaired_batch"))
    same = [place(origin).eqNullSafe(F.col("_place")), F.col("_batch") == F.col("_repaired_batch")]
    return ever_rejected(log).join(repairs, same, "left_anti")


def ever_rejected(log: DataFrame) -> DataFrame:
    """Every row that was rejected when it came, also those that were repaired since."""
    return log.where(F.col("_day").isNull() & F.col("_rejected").isNotNull())


def repaired(log: DataFrame) -> DataFrame:
    """The valid rows that repair a rejected one; `_origin.repairs` is the batch of that one."""
    return valid(log).where(F.col("_origin")[REPAIRS].isNotNull())


@placed_rows.register
def _(of: Stream, lake: Lake, side: str) -> PlacedRows:
    if side:
        raise DeclarationError(f"Table({of.name!r}, side={side!r}): a stream has no side outputs; leave side out.")
    return PlacedRows(
        uri=lake.log(of),
        unit="_batch",
        unit_name="batch",
        written=INGESTED_AT,
        at=of.event_time,
        made_by=f"run `tidemark run {of.name}` first, so that it has rows",
        order=(ORIGIN,),
        dated=True,
        instants=False,
        dropped=partial(_dropped, lake, of),
    )


def _dropped(lake: Lake, stream: Stream, log: DeltaTable) -> dict[int, int]:
    """Per batch the valid rows that have left an open log."""
    return {batch: gone["valid"] for batch, gone in dropped_rows(lake, stream, dropped_before(log)).items()}


def origin_type(source: Source) -> str:
    """The type of `_origin` in the log, as Spark DDL."""
    return f"{source.origin.removesuffix('>')}, {REPAIRS}: bigint>"


def with_origin(taken: DataFrame) -> DataFrame:
    """The rows that a source gives, with the whole `_origin` of each: none of them repairs one."""
    return taken.withColumn("_origin", F.col("_origin").withField(REPAIRS, F.lit(None).cast("bigint")))


def place(origin: Column) -> Column:
    """The part of `_origin` that a row and its repair have in common, for use with the batch of the original."""
    return origin.dropFields(REPAIRS)
