"""The frame that a step folds, state and rows that are due in the order of the fold, and the columns of its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache, reduce

import pyarrow as pa
import sqlglot
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType
from sqlglot import exp

from streaming.base import AT, BATCH, DAY, ORIGIN, SIGN, WRITTEN_AT
from streaming.declare import STATE, Keyed, Stream
from streaming.keyed.rules import PinnedRules
from streaming.keyed.state_table import DUE, HASH, TIMERS, Buckets
from streaming.keyed.tasks import MATCHING, STAMP, STREAM, TIME, key_column, value_column
from streaming.log import LogFiles
from streaming.operators import IDENTITY, signs, standing_among
from streaming.spark import guarded

_TIME = pa.timestamp("us", "UTC")
_COMPARISONS = (
    *(exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Paren, exp.And, exp.Or, exp.Not),
    *(exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Between, exp.In, exp.Is),
)


@dataclass(frozen=True)
class Range:
    """The batches that a step follows of each log, by stream: those in (after, through].

    Meanwhile the watermark, of several streams the least of theirs, goes from `since` to `until`.
    """

    after: Mapping[str, int]
    through: Mapping[str, int]
    since: datetime | None
    until: datetime | None


def rows_due(spark: SparkSession, keyed: Keyed, stream: Stream, log: LogFiles, within: Range) -> DataFrame:
    """The valid rows of a log that a step handles.

    Order `arrival`: those of its batches. Order `event`: those on time that the clock passes on the way, whichever
    batch brought them. A row of a later batch is never one of them, because its stamp is not below `until`. Nor does
    it take one of them back in time, as it has the same event time.
    """
    through = within.through[stream.name]
    if keyed.order == "arrival":
        return log.with_batches(spark, within.after[stream.name], through)
    if within.until is None:
        return log.none(spark)
    return log.with_times(spark, within.since, within.until, through).where(is_on_time(stream))


def is_on_time(stream: Stream) -> Column:
    """True where a row of the log came before the clock of its stream had passed it."""
    stamp = F.col("_watermark")
    return stamp.isNull() | (F.col(stream.event_time) >= stamp)


def in_order(
    keyed: Keyed,
    rows: Mapping[str, DataFrame],
    rules: PinnedRules | None = None,
    buckets: Buckets | None = None,
    *,
    visited: bool = False,
    beside: Sequence[str] = (),
) -> DataFrame:
    """The rows of each stream by the hash of their key, all of a key in one partition and there in their order.

    With `buckets`, all of a bucket are in one partition; `visited`: a row without a batch stands for each of them. Of
    `rules` with conditions, each row has those that are true of it. In order `event` a row that one of the others takes
    back is left out together with that; with `retractions` both come, and each row has its sign. The columns `beside`
    come last, as the rows have them.
    """
    if keyed.order == "event":
        rows = {stream.name: standing_among(rows[stream.name], stream) for stream in keyed.streams}
    if keyed.condition is not None and rules is not None:
        name = keyed.streams[0].name
        rows = {name: rows[name].withColumn(MATCHING, _matching(rules.history.of_all(keyed.condition)))}
    keys = [key_column(place) for place in range(len(keyed.by))]
    parts = [_rows_of(keyed, place, rows[stream.name], beside) for place, stream in enumerate(keyed.streams)]
    if visited and buckets is not None:
        parts.append(marks(parts[0].sparkSession, buckets))
    hashed = reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), parts)
    time = [F.col(TIME).asc_nulls_first()] if keyed.order == "event" else []
    # One revision takes a row back and adds another one.
    origins = [*(f"{ORIGIN}{place}" for place in range(len(keyed.streams))), *([SIGN, IDENTITY] * keyed.retractions)]
    within_time = [F.col(name).asc_nulls_first() for name in (STREAM, BATCH)]
    placed = hashed.repartition(HASH) if buckets is None else in_buckets(hashed, buckets)
    ordered = placed.sortWithinPartitions(HASH, *keys, *time, *within_time, *origins)
    columns = (HASH, *keys, TIME, STAMP, BATCH, STREAM, *([SIGN] * keyed.retractions), *_matched(keyed))
    values = [name for place in range(len(keyed.streams)) for name in _values(keyed, place)]
    return ordered.select(*columns, *values, *beside)


def hash_of(columns: Sequence[Column]) -> Column:
    """The hash of a key, which never changes: state is found by it."""
    return F.xxhash64(*columns) if columns else F.lit(0).cast("bigint")


def in_buckets(rows: DataFrame, buckets: Buckets) -> DataFrame:
    """The rows, by their hash all of a bucket in one partition."""
    most = int(rows.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    bucket = F.shiftright(HASH, buckets.shift) + F.lit(buckets.count // 2)
    return rows.repartitionById(min(buckets.count, most), bucket.cast("int"))


def marks(spark: SparkSession, buckets: Buckets) -> DataFrame:
    """A row for each bucket, with its least hash."""
    first = F.shiftleft(F.col("id") - F.lit(buckets.count // 2), buckets.shift)
    return spark.range(0, buckets.count, 1, 1).select(first.alias(HASH), F.lit(None).cast("bigint").alias(BATCH))


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


def _rows_of(keyed: Keyed, place: int, rows: DataFrame, beside: Sequence[str]) -> DataFrame:
    """The rows of one stream: keys, what orders them, and the stream's other columns under names of their own."""
    stream = keyed.streams[place]
    keys = [F.col(f"`{name}`") for name in keyed.by]
    return rows.select(
        hash_of(keys).alias(HASH),
        *(key.alias(key_column(each)) for each, key in enumerate(keys)),
        F.col(stream.event_time).alias(TIME),
        F.col("_watermark").alias(STAMP),
        BATCH,
        F.lit(place).alias(STREAM),
        stream.source.order_of(F.col(ORIGIN)).alias(f"{ORIGIN}{place}"),
        *(column.alias(name) for name, column in _signs(keyed, stream, rows).items()),
        *_matched(keyed),
        *(F.col(f"`{column}`").alias(name) for name, column in _values(keyed, place).items()),
        *beside,
    )


def _signs(keyed: Keyed, stream: Stream, rows: DataFrame) -> dict[str, Column]:
    """The sign and the identity of each row, where the function is called for rows that are taken back."""
    added = {SIGN: F.lit(1), IDENTITY: F.lit(None).cast("string")}
    return {**added, **signs(stream, rows)} if keyed.retractions else {}


def _matched(keyed: Keyed) -> tuple[str, ...]:
    return () if keyed.condition is None else (MATCHING,)


def _matching(conditions: Sequence[str]) -> Column:
    """The places of the conditions that are true of a row."""
    if not conditions:
        return F.array().cast("array<int>")
    true = [f"if(({condition}\n), {place}, null)" for place, condition in enumerate(conditions)]
    # What is computed leniently is null where it cannot be, but not all: intervals, patterns, and some functions raise.
    if not any(map(_may_raise, conditions)):
        return F.expr(f"array_compact(array({', '.join(true)}))")
    guards = ((F.expr(each), _may_raise(condition)) for each, condition in zip(true, conditions, strict=True))
    places = (guarded(place, BATCH)["value"] if may_raise else place for place, may_raise in guards)
    return F.array_compact(F.array(*places))


@lru_cache(10_000)
def _may_raise(condition: str) -> bool:
    """False where a condition does no more than compare columns and constants, which fails for no row."""
    try:
        tree = sqlglot.parse_one(condition, dialect="spark")
    # The stack is deeper here than where the condition was found readable.
    except RecursionError:
        return True
    return not all(isinstance(node, _COMPARISONS) for node in tree.walk())


def _values(keyed: Keyed, place: int) -> dict[str, str]:
    """The columns of a stream that are no keys, by the names under which they go into the fold."""
    others = (name for name in keyed.streams[place].columns if name not in keyed.by)
    return {value_column(place, each): name for each, name in enumerate(others)}
