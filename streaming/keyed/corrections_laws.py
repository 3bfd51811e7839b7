"""The audit of corrections of a keyed function: what is current, against the function over all rows by event time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import AT, DAY, literal, to_micros
from streaming.declare import CORRECTIONS, Keyed, corrections_of
from streaming.keyed.corrections import pinned_rules, read_corrections
from streaming.keyed.corrections_plan import pending
from streaming.keyed.current import current_results
from streaming.keyed.late import passed
from streaming.keyed.reached import Reached
from streaming.keyed.replacements import DayReplay, replayed
from streaming.keyed.rules import PinnedRules
from streaming.lake import Lake
from streaming.log import valid
from streaming.operators import Corrected, Finding, LogAtVersion, PinnedTables, differing_rows
from streaming.tables import delta


def audit_corrections(
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
    clock = Reached.of(keyed, delta.open_table(lake.table(keyed), pinned.versions[""])).watermark
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
        yield Finding("convergence", name, every.count(), differing_rows(current, every), compared)
        if corrections is not None and lake.cut is None:
            stored = corrections.drop("_corrected_at")
            again = _recomputed(keyed, rows, stored, table, logs, output, rules)
            broken = differing_rows(stored, again.select(*stored.columns))
            yield Finding("idempotence", name, stored.count(), broken, "corrections: computed again, equal")


def _at(keyed: Keyed, logs: Mapping[str, LogAtVersion], through: Mapping[str, int]) -> Reached:
    """Where a table is once it has followed the `logs` up to the batches `through`, by stream."""
    followed = {
        stream.name: [batch for batch in logs[stream.name].batches if batch.number <= through.get(stream.name, -1)]
        for stream in keyed.streams
    }
    return Reached.of(keyed, None).after(followed)


def _rules(
    spark: SparkSession, lake: Lake, keyed: Keyed, heads: Reached, logs: Mapping[str, LogAtVersion]
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
