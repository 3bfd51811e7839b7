"""Keyed functions as an operator: their laws, and what the rooms above know of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from functools import partial, reduce
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import (
    AT,
    BATCH,
    DAY,
    WRITTEN_AT,
    OperatorError,
    counted,
    from_micros,
    literal,
    optional_micros,
    to_micros,
    told,
)
from streaming.clocks import latest
from streaming.declare import CORRECTIONS, CURRENT, FIRST, LATE, STATE, Keyed, Pinned, Stream, corrections_of
from streaming.keyed.corrections import (
    DayReplay,
    correct,
    current_results,
    effect_on_hulls,
    late_rows,
    logs_of,
    passed,
    pending,
    pinned_rules,
    plan,
    read_corrections,
    replayed,
)
from streaming.keyed.fold import NEVER
from streaming.keyed.migration import changed_text, check_whole, counts_as, later_outputs, migrations_of
from streaming.keyed.rules import PinnedRules, rows_of_control, rules_of_logs
from streaming.keyed.state_table import DUE, TIMERS, spark_schema
from streaming.keyed.steps import KeyedSteps, in_order, is_on_time, table_schemas
from streaming.keyed.tasks import RowsOf
from streaming.lake import Lake
from streaming.log import OperatorCounts, head, read_log, valid
from streaming.operators import (
    ADDED_ROWS,
    MOST_PARTS,
    TAKEN_BACK,
    Coming,
    Corrected,
    Effect,
    Finding,
    Law,
    LogAtVersion,
    OperatorRuntime,
    PendingDay,
    PinnedTables,
    Progress,
    SteppedRuntime,
    built_anew,
    check_declaration,
    counted_by_sign,
    generation_of,
    require_table,
    rows_per_day,
    runtime_of,
    signs,
    version_read,
    whole_in,
    words_of,
)
from streaming.sources import UnitTable, check_has_side
from streaming.spark import lenient_session
from streaming.tables import delta

_log = logging.getLogger("tidemark")

_MIGRATE = (
    ", or, where its state or version changed and no timer is gone, raise `version` and declare `migrate`, a function "
    "from the old state to the new"
)


@runtime_of.register
def _(operator: Keyed, lake: Lake) -> OperatorRuntime:
    return KeyedRuntime(operator, lake)


class KeyedRuntime(SteppedRuntime[Keyed, KeyedSteps]):
    """A keyed function runs in steps over its logs, from a table of state to the next."""

    def check(self) -> None:
        check_declaration(self.lake, self.operator, self.counts_as, _MIGRATE)
        check_whole(self.lake, self.operator)
        keyed = self.operator
        later = [to for to in later_outputs(self.lake, keyed) if not delta.exists(self.lake.table(keyed, to))]
        if later:
            _log.warning(
                f"{keyed.kind_name} {keyed.name!r} has new side outputs, {', '.join(later)}: they begin with its next "
                f"step. `tidemark rebuild {keyed.name}` computes them from the first row on."
            )
        warning = changed_text(self.operator, delta.open_table(self.lake.table(self.operator, STATE)))
        if warning is not None:
            _log.warning(warning)

    def counts_as(self, makes: dict[str, Any]) -> dict[str, Any]:
        return counts_as(self.operator, makes)

    def unit_table(self, output: str = "") -> UnitTable:
        of = self.operator
        check_has_side(of.name, of.kind_name, output, of.output_schemas)
        return UnitTable(
            uri=self.lake.table(of, output),
            # Each step writes a later instant than the one before it.
            unit=WRITTEN_AT,
            unit_name="step of",
            written=WRITTEN_AT,
            at=AT,
            made_by=f"run `tidemark run {of.folder}` first, so that it has results",
            order=(AT, *of.by),
            generation=generation_of,
        )

    def counts(self, stream: Stream) -> OperatorCounts | None:
        if self.operator.order == "arrival" or stream not in self.operator.streams:
            return None
        late = F.when(F.col("_day").isNotNull() & ~is_on_time(stream), F.lit(1))
        return OperatorCounts(late=late, unassigned=F.lit(False), by="late rows")

    def latest_due(self, stream: Stream, rows: DataFrame, watermark: datetime) -> datetime | None:
        reached = Progress.at_heads(self.lake, self.operator).watermark
        if stream not in self.operator.streams or reached is None:
            return None
        waiting = None if self.operator.order == "arrival" else self._waiting(stream, rows, reached)
        clock = latest(waiting, reached)
        assert clock is not None
        return latest(waiting, self._steps_on(rows.sparkSession).latest_due(clock))

    def _waiting(self, stream: Stream, rows: DataFrame, watermark: datetime) -> datetime | None:
        """The clock that passes every row which waits for it, in the `rows` of the stream's log and in the others'."""
        maxima = []
        for each in self.operator.streams:
            log = rows if each == stream else valid(read_log(rows.sparkSession, self.lake, each))
            time = F.col(each.event_time)
            waits = log.where((time >= literal(watermark)) & is_on_time(each))
            maxima += waits.agg(F.unix_micros(F.max(time))).collect()
        # A row comes once the clock has passed it.
        return max((from_micros(row[0] + 1) for row in maxima if row[0] is not None), default=None)

    @property
    def readable(self) -> Mapping[str, Callable[[SparkSession], DataFrame]]:
        """The frames that people may look at; where late rows are corrected, each output is what is current of it."""
        keyed = self.operator
        late = {LATE: self._late} if keyed.tells_late else {}
        outputs = [to for to in keyed.output_schemas if to]
        if not keyed.corrected:
            shown = {CURRENT: partial(self._read, ""), **{to: partial(self._read, to) for to in outputs}}
        else:
            corrections = {corrections_of(to): partial(self._corrections, to) for to in keyed.output_schemas}
            shown = {
                CURRENT: partial(self._current, ""),
                FIRST: partial(self._read, ""),
                **{to: partial(self._current, to) for to in outputs},
                **corrections,
            }
        return {**shown, **late, STATE: partial(self._read, STATE)}

    def corrections_at(self, spark: SparkSession, version: int) -> DataFrame | None:
        return read_corrections(spark, self.lake, self.operator, "", version)

    def current_at(self, spark: SparkSession, versions: Mapping[str, int]) -> DataFrame:
        keyed = self.operator
        if not keyed.corrected:
            return super().current_at(spark, versions)
        corrections = read_corrections(spark, self.lake, keyed, "", versions.get(CORRECTIONS, delta.BEFORE))
        return current_results(delta.read(spark, self.lake.table(keyed), versions[""]), corrections, keyed)

    def late_per_day(self, spark: SparkSession) -> Mapping[tuple[date, str], int]:
        return rows_per_day(self._late(spark), F.col(AT), F.col("_stream")) if self.operator.tells_late else {}

    def plan(
        self, spark: SparkSession, logs: Mapping[str, int] | None = None, corrections: int | None = None
    ) -> list[PendingDay]:
        return plan(spark, self.lake, self.operator, logs, corrections)

    def correct(
        self,
        spark: SparkSession,
        days: Iterable[date],
        now: Callable[[], datetime],
        on_day: Callable[[date, int], None] = lambda day, rows: None,
    ) -> dict[date, int]:
        return correct(spark, self.lake, self.operator, days, now, on_day)

    def effects(self, spark: SparkSession, coming: Coming) -> Sequence[Effect]:
        keyed = self.operator
        if coming.stream not in keyed.streams:
            # Rows see the rules of the batch that brought them, which these are not.
            return ()
        effect = effect_on_hulls(spark, self.lake, keyed, coming) if keyed.corrected else _calls(keyed, coming)
        return () if effect is None else (effect,)

    def needs_since(self, spark: SparkSession | None, stream: Stream, since: Mapping[str, date]) -> date | None:
        # State stands for the rows that are followed; but a correction begins where its key began, and a rule stays in
        # force however old it is.
        keyed = self.operator
        if stream not in keyed.streams or stream in keyed.pins or keyed.corrected:
            return None
        if keyed.order == "arrival" or len(keyed.streams) == 1:
            return since[stream.name]
        # Rows that the clock of another stream holds up wait in the log.
        folded = Progress.of(keyed, delta.open_table(self.lake.table(keyed, STATE))).watermark
        return None if folded is None else min(since[stream.name], folded.date())

    def why_all(self, stream: Stream) -> str:
        if stream in self.operator.pins:
            return "has rules of it, which stay in force however old they are"
        if not self.operator.corrected:
            return "waits for a row of another stream of it"
        return "corrects late rows by all rows of a key since it was idle, which may be of any day"

    def described(self, analysis: Mapping[str, Any]) -> dict[str, str]:
        lake, keyed = self.lake, self.operator
        return {
            "results": _results(keyed),
            "computed": _computed(keyed),
            "rules": "" if keyed.rules is None else _rules(keyed.rules),
            "state": _state(lake, keyed),
            "migrated": ", ".join(migrations_of(lake, keyed)),
            "late rows": _late(keyed),
        }

    def position(self) -> str:
        return _position(self.lake, self.operator)

    def laws(
        self, spark: SparkSession, pinned: PinnedTables[Keyed], logs: Mapping[str, LogAtVersion]
    ) -> Iterator[Finding]:
        return audit_keyed(spark, self.lake, pinned, logs)

    def _read(self, suffix: str, spark: SparkSession) -> DataFrame:
        keyed = self.operator
        table = require_table(self.lake, keyed, suffix)
        rows = delta.read(spark, self.lake.table(keyed, suffix), version_read(self.lake, keyed, table))
        keys = [f"`{name}`" for name in keyed.by]
        if suffix != STATE:
            return rows.orderBy(AT, *keys)
        # A table of an older release has its columns in another order, and no hash.
        fields = (f"`{name}`" for name in keyed.state_schema.names)
        state = rows.select(*keys, *fields, TIMERS, DUE)
        # Without keys there is one row at most, and Spark takes no order by nothing.
        return state.orderBy(*keys) if keys else state

    def _current(self, output: str, spark: SparkSession) -> DataFrame:
        corrections = read_corrections(spark, self.lake, self.operator, output)
        current = current_results(self._read(output, spark), corrections, self.operator, output)
        return current.orderBy(AT, *(f"`{name}`" for name in self.operator.by))

    def _corrections(self, output: str, spark: SparkSession) -> DataFrame:
        keyed = self.operator
        corrections = read_corrections(spark, self.lake, keyed, output)
        if corrections is None:
            raise OperatorError(
                f"{keyed.kind_name} {keyed.name!r} has no corrections at "
                f"{self.lake.table(keyed, corrections_of(output))!r} yet; run `tidemark correct {keyed.folder}` first, "
                "or point TIDEMARK_HOME to the lake that has them."
            )
        return corrections.orderBy(AT, *(f"`{name}`" for name in keyed.by))

    def _late(self, spark: SparkSession) -> DataFrame:
        return late_rows(self.operator, logs_of(spark, self.lake, self.operator))

    def _begun(self, spark: SparkSession) -> KeyedSteps:
        steps = KeyedSteps(spark, self.lake, self.operator)
        steps.repair()
        migrated = steps.migrate()
        if migrated is not None:
            _log.warning(migrated)
        return steps


def _calls(keyed: Keyed, coming: Coming) -> Effect:
    """The effect on a function that is called for each row, also for one that is taken back."""
    keys = [f"`{name}`" for name in keyed.by]
    rows = coming.rows.withColumns(signs(coming.stream, coming.rows))
    calls = rows.groupBy(*keys).agg(*counted_by_sign()).persist()
    try:
        sums = (F.sum(name).alias(name) for name in (TAKEN_BACK, ADDED_ROWS))
        row = calls.agg(F.count(F.lit(1)).alias("keys"), *sums).first()
        first = calls.orderBy(*keys).limit(MOST_PARTS).collect() if keys else []
    finally:
        calls.unpersist()
    assert row is not None
    come = [f"{counted(row[name], 'row')} {words_of(name)}" for name in (TAKEN_BACK, ADDED_ROWS) if row[name]]
    of_keys = f", of {counted(row['keys'], 'key')}" if keys else ""
    return Effect(
        keyed.name,
        f"the function would be called for {' and '.join(come)}{of_keys}",
        {"keys": row["keys"], "calls": row[TAKEN_BACK] + row[ADDED_ROWS]},
        tuple(each.asDict() for each in first),
        row["keys"] - len(first) if keys else 0,
    )


def _results(keyed: Keyed) -> str:
    names = " and ".join(stream.name for stream in keyed.streams)
    keys = f"per {', '.join(keyed.by)}" if keyed.by else "for one key in all"
    sides = f"; side outputs: {', '.join(keyed.sides)}" if keyed.sides else ""
    return f"what {keyed.fingerprint['function']} emits {keys} over {names}{sides}"


def _computed(keyed: Keyed) -> str:
    order = (
        "the order of the log" if keyed.order == "arrival" else "order of event time, once the clock has passed them"
    )
    if keyed.retractions:
        order = f"{order}, those that are taken back among them"
    if len(keyed.streams) > 1:
        order = "order of event time, once the clocks of all streams have passed them"
    rows = "rows that stand" if keyed.order == "event" and _takes_back(keyed) else "rows"
    return f"{rows} in {order}; each step folds the rows that are due onto the state, in one pass"


def _rules(pinned: Pinned) -> str:
    return f"{pinned.fingerprint}; each batch says how far they were, and its rows see those"


def _state(lake: Lake, keyed: Keyed) -> str:
    uri = lake.table(keyed, STATE)
    table = delta.open_table(uri)
    if table is None:
        return "none"
    forgets = (
        "kept until the function clears it" if keyed.idle is None else f"forgotten after {keyed.idle} without a row"
    )
    return f"{counted(table.count(), 'key')}, {delta.size(uri):,} bytes in {keyed.name}_{STATE}; {forgets}"


def _late(keyed: Keyed) -> str:
    if keyed.order == "arrival":
        return "come like all others; the function is told by key.late"
    if not keyed.corrected:
        return "are left out of the results; `late` shows them. With idle they would be corrected"
    if _takes_back(keyed):
        return (
            "are left out of the first results; what is emitted for activity sessions that had some, whether they were "
            "added or taken back, waits for the scheduled correction"
        )
    return "are left out of the first results; the activity sessions that have some wait for the scheduled correction"


def _takes_back(keyed: Keyed) -> bool:
    return any(stream.takes_back for stream in keyed.streams)


def _position(lake: Lake, keyed: Keyed) -> str:
    at = Progress.of(keyed, delta.open_table(lake.table(keyed)))
    newest = {stream.name: batch.number for stream in keyed.streams if (batch := head(lake, stream)) is not None}
    several = len(at.through) > 1
    places = [
        f"batch {number:,} of {newest.get(name, -1):,}" + (f" of {name}" if several else "")
        for name, number in at.through.items()
    ]
    return f"{', '.join(places)}, watermark {told(at.watermark)}{built_anew(at.generation)}"


def audit_keyed(
    spark: SparkSession, lake: Lake, pinned: PinnedTables[Keyed], logs: Mapping[str, LogAtVersion]
) -> Iterator[Finding]:
    """The laws: each table holds what the function over the whole logs gives, however these were cut into steps.

    Raises:
        OperatorError: nothing is computed yet.
    """
    keyed = pinned.operator
    if pinned.versions[""] == delta.BEFORE:
        raise pinned.nothing_yet(lake, "computed")
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
        computed = _computed_again(spark, lake, keyed, logs, at, suffix, schema)
        stored = delta.read(spark, uri, version).select(*(f"`{name}`" for name in columns))
        words = f"{suffix or 'results'}: computed again, equal"
        yield Law("cuts", keyed.table_name(suffix), stored, computed, words).finding()
    if keyed.corrected:
        yield from _audit_corrections(spark, lake, pinned, logs)


def _computed_again(
    spark: SparkSession,
    lake: Lake,
    keyed: Keyed,
    logs: Mapping[str, LogAtVersion],
    at: Progress,
    suffix: str,
    schema: pa.Schema,
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
        name = keyed.streams[0].name
        known = _rows_of_control(spark, lake, keyed.rules, logs)
        rules = rules_of_logs(keyed.rules, logs[name].batches, at.through[name], known)
    task = RowsOf(keyed, NEVER if clock is None else clock, suffix, schema, rules)
    return in_order(keyed, rows, rules).mapInArrow(task, spark_schema(schema, partitioned=False))


def _audit_corrections(
    spark: SparkSession, lake: Lake, pinned: PinnedTables[Keyed], logs: Mapping[str, LogAtVersion]
) -> Iterator[Finding]:
    """First results overlaid with corrections are what the function gives over all rows, and corrections repeat."""
    keyed = pinned.operator
    rows = {stream.name: valid(logs[stream.name].rows) for stream in keyed.streams}
    heads = _at(keyed, logs, {name: log.batches[-1].number for name, log in logs.items() if log.batches})
    rules = _pinned_rules(spark, lake, keyed, heads, logs)
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


def _pinned_rules(
    spark: SparkSession, lake: Lake, keyed: Keyed, heads: Progress, logs: Mapping[str, LogAtVersion]
) -> PinnedRules | None:
    if keyed.rules is None:
        return None
    batches = logs[keyed.streams[0].name].batches
    return pinned_rules(spark, lake, keyed, heads, batches, _rows_of_control(spark, lake, keyed.rules, logs))


def _rows_of_control(
    spark: SparkSession, lake: Lake, pinned: Pinned, logs: Mapping[str, LogAtVersion]
) -> DataFrame | None:
    """The rows that rules follow from: of the log that is audited, or of a history, which has a law of its own."""
    if pinned.history is not None:
        return rows_of_control(spark, lake, pinned)
    control = logs.get(pinned.control.name)
    return None if control is None else control.rows


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
