"""The audit of a selection: what is stored and counted, against the log selected once more in one plain read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import AT, BATCH, DAY, ORIGIN, WRITTEN_AT, OperatorError
from streaming.declare import ELEMENT, FAILED, Selected, Side, Stream
from streaming.lake import Lake
from streaming.log import valid
from streaming.operators import (
    FilterCounts,
    Finding,
    Law,
    LogAtVersion,
    PinnedTables,
    Progress,
    can_be_compared,
    of_kept_days,
    whole_in,
)
from streaming.selected.frame import columns_by_output, origin_of, outputs_of, select_all, spark_schema, table_schemas
from streaming.selected.tasks import ApplyFunction, HandOn
from streaming.tables import delta

_PASSED = "_passed"


def audit_selected(
    spark: SparkSession, lake: Lake, pinned: PinnedTables[Selected], logs: Mapping[str, LogAtVersion]
) -> Iterator[Finding]:
    """The laws: what came to each filter was kept or removed, and each table holds what was kept and nothing else.

    Raises:
        OperatorError: nothing is selected yet.
    """
    selected = pinned.operator
    if pinned.versions[""] == delta.BEFORE:
        raise OperatorError(
            f"selection {selected.name!r} has selected nothing yet at {lake.table(selected)!r}; run `tidemark run "
            f"{selected.folder}` first."
        )
    since = whole_in(lake, selected, logs)
    if selected.diverts:
        yield from _audit_diverting(spark, lake, pinned, logs, since)
        return
    for to, version in pinned.versions.items():
        uri, name = lake.table(selected, to), selected.table_name(to)
        at = Progress.of(selected, delta.open_table(uri, version))
        candidates = [
            _candidates(selected.outputs[to], stream, logs[stream.name].rows, at.through[stream.name])
            for stream in selected.reads
        ]
        candidates = [rows.where(can_be_compared(since)) for rows in candidates]
        stored = delta.read(spark, uri, version).drop(WRITTEN_AT).where(can_be_compared(since))
        newest = None if len(selected.reads) > 1 else lake.batch_read(selected.reads[0])
        if since is not None:
            description = f"rows: not counted again, as those of days before {since} are gone"
            yield Finding("conservation", name, 0, 0, description)
        elif newest is None:
            counted = sum(map(_counted, candidates), FilterCounts())
            wrong = abs(counted.kept - at.counts.kept) + abs(counted.removed - at.counts.removed)
            yield Finding("conservation", name, counted.rows_in, wrong, "rows: kept or removed, as counted")
        if newest is not None:
            # The table counts what came to its filter up to now.
            stored = stored.where(F.col(BATCH) <= newest)
        if len(selected.reads) > 1:
            # Of several logs it is the number of the step, which depends on how they went on side by side.
            stored = stored.drop(BATCH)
        kept = _kept(selected, to, candidates).select(*(f"`{each}`" for each in stored.columns))
        yield Law("cuts", name, stored, kept, f"rows: selected again, equal{of_kept_days(since)}").finding()


def _audit_diverting(
    spark: SparkSession,
    lake: Lake,
    pinned: PinnedTables[Selected],
    logs: Mapping[str, LogAtVersion],
    since: date | None,
) -> Iterator[Finding]:
    """Where rows that cannot be computed go to an output of their own, each output is selected again in one read."""
    selected = pinned.operator
    newest = None if len(selected.reads) > 1 else lake.batch_read(selected.reads[0])
    # That for failed rows is not there yet where it was declared since the last step.
    there = {to: version for to, version in pinned.versions.items() if version != delta.BEFORE}
    for to, version in there.items():
        uri = lake.table(selected, to)
        at = Progress.of(selected, delta.open_table(uri, version))
        rows = {
            name: valid(log.rows).where((F.col(BATCH) <= at.through[name]) & can_be_compared(since))
            for name, log in logs.items()
        }
        frame = select_all(selected, rows)
        schema = table_schemas(selected, columns_by_output(selected, frame))[to]
        schema = schema.remove(schema.get_field_index(WRITTEN_AT))
        task = HandOn(selected.name, outputs_of(selected), to, selected.function, schema)
        again = frame.mapInArrow(task, spark_schema(schema))
        stored = delta.read(spark, uri, version).drop(WRITTEN_AT).where(can_be_compared(since))
        if newest is not None:
            stored, again = stored.where(F.col(BATCH) <= newest), again.where(F.col(BATCH) <= newest)
        if len(selected.reads) > 1:
            # Of several logs it is the number of the step, which depends on how they went on side by side.
            stored = stored.drop(BATCH)
        if to == FAILED:
            # They name columns that the stream has by now, and lines of the function's file as it is today.
            stored = stored.drop("error", "row")
        again = again.select(*(f"`{each}`" for each in stored.columns))
        words = f"rows: selected again, equal{of_kept_days(since)}"
        yield Law("cuts", selected.table_name(to), stored, again, words).finding()


def _candidates(side: Side, stream: Stream, log: DataFrame, through: int) -> DataFrame:
    """The rows of one log that came to the filter of an output, with `_passed`."""
    rows = valid(log).where(F.col(BATCH) <= through)
    if side.explode is not None:
        ((name, array),) = side.explode.items()
        rows = rows.select("*", F.posexplode(F.expr(array)).alias(ELEMENT, name))
    passed = F.lit(True) if side.where is None else F.coalesce(F.expr(side.where), F.lit(False))
    return rows.withColumn(_PASSED, passed)


def _counted(candidates: DataFrame) -> FilterCounts:
    row = candidates.agg(F.count(F.lit(1)).alias("rows"), F.count_if(_PASSED).alias("kept")).first()
    assert row is not None
    return FilterCounts(row["rows"], row["kept"])


def _kept(selected: Selected, to: str, candidates: Sequence[DataFrame]) -> DataFrame:
    """The rows that the table must hold, however the logs were cut into steps."""
    side = selected.outputs[to]
    origins = {
        stream.name: rows.schema[ORIGIN].dataType for stream, rows in zip(selected.reads, candidates, strict=True)
    }
    parts = [
        rows.where(_PASSED).select(
            *(F.expr(sql).alias(name) for name, sql in side.selected(stream.columns).items()),
            F.col(f"`{stream.event_time}`").alias(AT),
            BATCH,
            origin_of(stream, origins).alias(ORIGIN),
            *([ELEMENT] if side.element else []),
            DAY,
        )
        for stream, rows in zip(selected.reads, candidates, strict=True)
    ]
    kept = reduce(DataFrame.unionAll, parts)
    if to or selected.function is None:
        return kept
    schema = table_schemas(selected, {"": kept.schema})[""]
    results = schema.remove(schema.get_field_index(WRITTEN_AT))
    return kept.mapInArrow(ApplyFunction(selected.name, selected.function, results), spark_schema(results))
