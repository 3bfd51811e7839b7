"""The audit of a keyed function: what is stored, against the function over the whole log in one go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import reduce

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import AT, DAY, WRITTEN_AT, OperatorError, literal, optional_micros, to_micros
from streaming.declare import CORRECTIONS, STATE, Keyed, corrections_of
from streaming.keyed.control import rules_of_logs
from streaming.keyed.corrections import DayReplay, current_results, pending, pinned_rules, read_corrections, replayed
from streaming.keyed.frame import in_order, is_on_time
from streaming.keyed.key import NEVER
from streaming.keyed.late import passed
from streaming.keyed.migration import later_outputs, migrations_of
from streaming.keyed.partition import BATCH
from streaming.keyed.rules import PinnedRules
from streaming.keyed.schemas import spark_schema, table_schemas
from streaming.keyed.tasks import RowsOf
from streaming.lake import Lake
from streaming.log import valid
from streaming.operators import Corrected, Finding, Law, LogAtVersion, PinnedTables, Progress, whole_in
from streaming.spark import lenient_session
from streaming.tables import delta


def audit_keyed(
    spark: SparkSession, lake: Lake, pinned: PinnedTables[Keyed], logs: Mapping[str, LogAtVersion]
) -> Iterator[Finding]:
    """The laws: each table holds what the function over the whole logs gives, however these were cut into steps.

    Raises:
        OperatorError: nothing is computed yet.
    """
    keyed = pinned.operator
    if pinned.versions[""] == delta.BEFORE:
        raise OperatorError(
            f"keyed function {keyed.name!r} has computed nothing yet at {lake.table(keyed)!r}; run `tidemark run "
            f"{keyed.folder}` first."
        )
    if keyed.condition is not None:
        log = logs[keyed.streams[0].name]
        rows = delta.read(lenient_session(spark), lake.log(keyed.streams[0]), log.version)
        logs = {**logs, keyed.streams[0].name: replace(log, rows=rows)}
    schemas = table_schemas(keyed, logs[keyed.streams[0].name].rows)
    migrated, since = migrations_of(lake, keyed), whole_in(lake, keyed, logs)
    reason = f"not computed again, since older declarations made a part of it: migrated {', '.join(migrated)}"
    if since is not None:
        reason = f"not computed again, since its state follows from rows of days before {since} too, which are gone"
    if migrated or since is not None:
        yield from (Finding("cuts", keyed.table_name(suffix), 0, 0, reason) for suffix in pinned.versions)
        return
    later = later_outputs(lake, keyed)
    for suffix, version in pinned.versions.items():
        if suffix not in schemas or version == delta.BEFORE:
            continue
        if later and suffix in (STATE, *later):
            # Nobody knows what the older function would have kept for outputs that it did not have.
            yield Finding("cuts", keyed.table_name(suffix), 0, 0, f"not computed again: {', '.join(later)} began later")
            continue
        uri = lake.table(keyed, suffix)
        at = Progress.of(keyed, delta.open_table(uri, version))
        columns = [name for name in schemas[suffix].names if name != WRITTEN_AT]
        if suffix == STATE:
            columns = [*keyed.by, *keyed.state_schema.names]
        if not columns:
            continue
        schema = pa.schema([schemas[suffix].field(name) for name in columns])
        computed = _computed(keyed, logs, at, suffix, schema)
        stored = delta.read(spark, uri, version).select(*(f"`{name}`" for name in columns))
        words = f"{suffix or 'results'}: computed again, equal"
        yield Law("cuts", keyed.table_name(suffix), stored, computed, words).finding()
    if keyed.corrected:
        yield from _audit_corrections(spark, lake, pinned, logs)


def _computed(
    keyed: Keyed, logs: Mapping[str, LogAtVersion], at: Progress, suffix: str, schema: pa.Schema
) -> DataFrame:
    rows = {}
    for stream in keyed.streams:
        followed = valid(logs[stream.name].rows).where(F.col(BATCH) <= at.through[stream.name])
        if keyed.order == "event":
            passed = F.col(stream.event_time) < literal(at.watermark)
            followed = followed.where(is_on_time(stream) & passed)
        rows[stream.name] = followed
    clock, rules = optional_micros(at.watermark), None
    if keyed.rules is not None:
        control, name = logs.get(keyed.rules.of.name), keyed.streams[0].name
        control_rows = None if control is None else control.rows
        rules = rules_of_logs(keyed.rules, logs[name].batches, at.through[name], control_rows)
    task = RowsOf(keyed, NEVER if clock is None else clock, suffix, schema, rules)
    return in_order(keyed, rows, rules).mapInArrow(task, spark_schema(schema, partitioned=False))


def _audit_corrections(
    spark: SparkSession, lake: Lake, pinned: PinnedTables[Keyed], logs: Mapping[str, LogAtVersion]
) -> Iterator[Finding]:
    """First results overlaid with corrections are what the function gives over all rows, and corrections repeat."""
    keyed = pinned.operator
    rows = {stream.name: valid(logs[stream.name].rows) for stream in keyed.streams}
    heads = _at(keyed, logs, {name: log.batches[-1].number for name, log in logs.items() if log.batches})
    rules = _rules(spark, lake, keyed, heads, logs)
    table = delta.open_table(lake.corrections(keyed), pinned.versions[CORRECTIONS])
    # As of older batches corrections are computed for them, so that none waits.
    waiting = {entry.day for entry in pending(keyed, rows, heads, table)} if lake.cut is None else set()
    # The function may be some batches behind its logs.
    clock = Progress.of(keyed, delta.open_table(lake.table(keyed), pinned.versions[""])).watermark
    for output in keyed.output_schemas:
        if clock is None or pinned.versions[output] == delta.BEFORE:
            continue
        name = keyed.table_name(output)
        first = delta.read(spark, lake.table(keyed, output), pinned.versions[output])
        corrections = read_corrections(spark, lake, keyed, output, pinned.versions[corrections_of(output)])
        settled = F.col(AT) < literal(clock)
        if waiting:
            settled = settled & ~F.to_date(AT).isin(*waiting)
        every = replayed(keyed, passed(keyed, rows, heads.through, clock), to_micros(clock), output, rules).where(
            settled
        )
        current = current_results(first, corrections, keyed, output).where(settled).drop("_corrected", DAY)
        compared = "rows: current = the function over all rows" + (f"; {len(waiting)} days wait" if waiting else "")
        yield Law("convergence", name, current, every, compared).finding()
        if corrections is not None and lake.cut is None:
            stored = corrections.drop("_corrected_at")
            again = _recomputed(keyed, rows, stored, table, logs, output, rules)
            yield Law("idempotence", name, stored, again, "corrections: computed again, equal").finding()


def _at(keyed: Keyed, logs: Mapping[str, LogAtVersion], through: Mapping[str, int]) -> Progress:
    """Where a table is once it has followed the `logs` up to the batches `through`, by stream."""
    followed = {
        stream.name: [batch for batch in logs[stream.name].batches if batch.number <= through.get(stream.name, -1)]
        for stream in keyed.streams
    }
    return Progress.of(keyed, None).after(followed)


def _rules(
    spark: SparkSession, lake: Lake, keyed: Keyed, heads: Progress, logs: Mapping[str, LogAtVersion]
) -> PinnedRules | None:
    if keyed.rules is None:
        return None
    control = logs.get(keyed.rules.of.name)
    batches = logs[keyed.streams[0].name].batches
    return pinned_rules(spark, lake, keyed, heads, batches, None if control is None else control.rows)


def _recomputed(
    keyed: Keyed,
    rows: Mapping[str, DataFrame],
    stored: DataFrame,
    table: DeltaTable | None,
    logs: Mapping[str, LogAtVersion],
    output: str,
    rules: PinnedRules | None,
) -> DataFrame:
    parts = []
    for row in stored.select(DAY).distinct().collect():
        at = _at(keyed, logs, Corrected.of(keyed, row[DAY], table).through)
        parts.append(DayReplay.of(keyed, rows, row[DAY], at).replacements(output, rules))
    return reduce(DataFrame.unionByName, parts) if parts else stored.limit(0)
