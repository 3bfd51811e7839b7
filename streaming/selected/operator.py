"""Selections as an operator: their frames, steps and laws, and what the rooms above know of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from functools import cached_property, partial, reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import DateType, StructField, StructType

from streaming.base import (
    ADDED,
    AT,
    BATCH,
    DAY,
    ORIGIN,
    SIGN,
    WRITTEN_AT,
    FunctionError,
    arrow_schema,
    counted,
    to_micros,
)
from streaming.declare import ELEMENT, FAILED, Selected, Side, Stream
from streaming.lake import Lake
from streaming.log import LogFiles, head, valid
from streaming.operators import (
    Batches,
    Coming,
    Effect,
    FilterCounts,
    Finding,
    Law,
    LogAtVersion,
    OperatorRuntime,
    Outputs,
    PinnedTables,
    Progress,
    SteppedRuntime,
    Written,
    are_net,
    built_anew,
    can_be_compared,
    check_followed,
    create_table,
    effect_of_rows,
    filter_counts,
    identity_in,
    net,
    of_kept_days,
    require_table,
    runtime_of,
    sign_in,
    version_read,
    versions_now,
    whole_in,
)
from streaming.selected.tasks import WRITTEN, ApplyFunction, HandOn, WriteOutputs, of_report
from streaming.sources import UnitTable
from streaming.spark import Analysis, as_json, first_failure, guarded
from streaming.tables import TaskFile, delta

_FROM = "_from"
_WRITTEN_AT = pa.field(WRITTEN_AT, pa.timestamp("us", "UTC"))
_PASSED = "_passed"
_TAKEN_BACK = "what is selected of a row is taken back with it; what is current are the rows that stand"


def select_all(selected: Selected, rows: Mapping[str, DataFrame]) -> DataFrame:
    """The valid `rows` of each stream's log, with a column for each output in the order of `selected.outputs`.

    A column is a struct of what goes into the output, null for a row that its filter removes; where rows are exploded
    it is an array of such. Where rows that cannot be computed go to a side output, the last column is a struct of what
    goes there, with an `error` or null, and all others are null where there is one.
    """
    return reduce(DataFrame.unionAll, _selected_of(selected, rows).values())


def _selected_of(selected: Selected, rows: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
    """The rows that `select_all` brings together, by stream."""
    origins = {stream.name: rows[stream.name].schema[ORIGIN].dataType for stream in selected.reads}
    return {
        stream.name: rows[stream.name]
        .withColumns(
            {AT: F.col(f"`{stream.event_time}`"), _FROM: origin_of(stream, origins), **_signs(selected, stream)}
        )
        .select(*_columns(selected, stream))
        for stream in selected.reads
    }


def selected_again(selected: Selected, rows: Mapping[str, DataFrame]) -> DataFrame:
    """The rows of the selection's own table that the valid `rows` of each stream's log become.

    They have all columns of the table but when they were written; those that are taken back are among them.
    """
    frame = select_all(selected, rows)
    return _handed_on(selected, "", frame, table_schemas(selected, columns_by_output(selected, frame))[""])


def _signs(selected: Selected, stream: Stream) -> dict[str, Column]:
    """The columns that tell which row is taken back, where some are; rows of several streams are told apart."""
    if not selected.signed:
        return {}
    identity = identity_in(stream)
    named = identity if len(selected.reads) == 1 else F.concat(F.lit(f"{stream.name} "), identity)
    return {ADDED: named, SIGN: sign_in(stream)}


def _columns(selected: Selected, stream: Stream) -> list[Column]:
    columns = [_column(selected, side, stream) for side in selected.outputs.values()]
    if selected.diverts:
        computed = [guarded(column, BATCH) for column in columns]
        fails = reduce(Column.__or__, (column.isNull() for column in computed))
        columns = [F.when(~fails, column["value"]) for column in computed]
        columns.append(_failed(selected, stream, fails))
    return [column.alias(f"_{place}") for place, column in enumerate(columns)]


def _failed(selected: Selected, stream: Stream, fails: Column) -> Column:
    """A row of the side output: the error, null where all can be computed, the row, and where it is from.

    Null where all can, unless a function may still raise for it.
    """
    parts = (part for to, side in selected.outputs.items() for part in _parts(to, side, stream))
    unnamed = F.lit("an element of what is exploded cannot be computed")
    row = as_json(F.col(f"`{name}`") for name in stream.columns)
    whole = F.struct(
        F.when(fails, F.coalesce(first_failure(parts, BATCH), unnamed)).alias("error"),
        row.alias("row"),
        AT,
        BATCH,
        F.col(_FROM).alias(ORIGIN),
        *_signs(selected, stream),
        DAY,
    )
    return F.when(fails, whole) if selected.function is None else whole


def _parts(to: str, side: Side, stream: Stream) -> Iterator[tuple[str, str, Column]]:
    """The expressions of an output that a row alone tells: what each is, its SQL, and how it is computed."""
    of = f" of side output {to!r}" if to else ""
    if side.explode is not None:
        ((name, array),) = side.explode.items()
        yield f"explode {name!r}{of}", array, F.expr(f"({array}\n)")
        return
    kept = F.lit(True) if side.where is None else F.expr(f"({side.where}\n)")
    if side.where is not None:
        yield f"where{of}", side.where, kept
    for name, sql in side.selected(stream.columns).items():
        # Of a row that the condition removes nothing is computed.
        yield f"column {name!r}{of}", sql, F.when(kept, F.expr(f"({sql}\n)"))


def origin_of(stream: Stream, origins: Mapping[str, object]) -> Column:
    """`_origin` as the tables have it: of several streams, a struct with a field for each, null but for one."""
    if len(origins) == 1:
        return F.col(ORIGIN)
    fields = (
        (F.col(ORIGIN) if name == stream.name else F.lit(None).cast(kind)).alias(name)  # type: ignore[arg-type]
        for name, kind in origins.items()
    )
    return F.struct(*fields)


def columns_by_output(selected: Selected, frame: DataFrame) -> dict[str, StructType]:
    """The columns of each output, of a frame that `select_all` gave."""
    kinds = (field.dataType for field in frame.schema.fields)
    return {
        to: kind if isinstance(kind, StructType) else kind.elementType  # type: ignore[attr-defined]
        for to, kind in zip(outputs_of(selected), kinds, strict=True)
    }


def outputs_of(selected: Selected) -> tuple[str, ...]:
    """The suffixes of the tables that a step fills, in the order of the columns that `select_all` gives."""
    return (*selected.outputs, *([FAILED] if selected.diverts else []))


def _column(selected: Selected, side: Side, stream: Stream) -> Column:
    values = [f"({sql}\n) as `{name}`" for name, sql in side.selected(stream.columns).items()]
    element = [ELEMENT] if side.element else []
    added = [AT, BATCH, f"{_FROM} as {ORIGIN}", *_signs(selected, stream), *element, DAY]
    whole = f"struct({', '.join([*values, *added])})"
    kept = whole if side.where is None else f"if(({side.where}\n), {whole}, null)"
    if side.explode is None:
        return F.expr(kept)
    ((name, array),) = side.explode.items()
    return F.expr(f"transform(({array}\n), (`{name}`, {ELEMENT}) -> {kept})")


def table_schemas(selected: Selected, columns: Mapping[str, StructType]) -> dict[str, pa.Schema]:
    """The columns of each table without the day, by its suffix; `columns` are those that Spark selects."""
    return {to: _with_results(selected, to, _fields(kind)) for to, kind in columns.items()}


def spark_schema(schema: pa.Schema) -> StructType:
    """The columns of a table as Spark knows them, with the day, which partitions it."""
    fields = from_arrow_schema(schema, prefer_timestamp_ntz=True).fields
    return StructType([*fields, StructField(DAY, DateType())])


def _fields(kind: StructType) -> list[pa.Field]:
    # A column may be without a null in one step and have some in another.
    return [pa.field(field.name, field.type) for field in to_arrow_schema(kind, timezone="UTC") if field.name != DAY]


def _with_results(selected: Selected, to: str, fields: list[pa.Field]) -> pa.Schema:
    """A function's own table has what the function returns in place of what is selected for it."""
    if selected.function is not None and to == "":
        added = [field for field in fields if field.name.startswith("_")]
        fields = [*arrow_schema(selected.function.returns), *added, pa.field(ELEMENT, pa.int32())]
    return pa.schema([*fields, _WRITTEN_AT])


class _SelectedAnalysis(Analysis[Selected]):
    """A selection over its logs, as Spark sees it."""

    @cached_property
    def rows(self) -> DataFrame:
        """No row, as selected for all outputs at once.

        Raises:
            DeclarationError: a value may be lost where Spark brings columns of several streams to one type.
        """
        parts = _selected_of(self.of, self.inputs)
        columns = {name: columns_by_output(self.of, part) for name, part in parts.items()}
        for to, of_first in columns[self.of.reads[0].name].items():
            for place, field in enumerate(of_first) if to in self.of.outputs else ():
                if field.name in self.of.outputs[to].selected(self.of.reads[0].columns):
                    types = {name: each[to][place].dataType.simpleString() for name, each in columns.items()}
                    self.of.check_types(to, field.name, types)
        return reduce(DataFrame.unionAll, parts.values())

    @cached_property
    def schemas(self) -> Mapping[str, pa.Schema]:
        """The columns of each of its tables without the day, by suffix."""
        return table_schemas(self.of, columns_by_output(self.of, self.rows))


class SelectedSteps:
    """The steps of one selection in one process."""

    def __init__(self, spark: SparkSession, lake: Lake, selected: Selected) -> None:
        self._spark = spark
        self._lake = lake
        self._selected = selected
        self._logs = {stream.name: LogFiles(lake, stream) for stream in selected.reads}
        columns = {name: log.columns() for name, log in self._logs.items()}
        self._schemas = _SelectedAnalysis.once(spark, selected, columns).schemas
        self._outputs = Outputs(lake, selected)
        self._ready: set[str] = set()

    def pieces(self, most_rows: int) -> Iterator[Batches]:
        """The batches to follow, in pieces of at most `most_rows` rows of each log."""
        return self._outputs.pieces(most_rows)

    def step(self, batches: Batches, now: Callable[[], datetime]) -> Written:
        """Follow `batches`, those after the selection's own table in order and without a gap.

        Raises:
            FencedError: another process has taken over.
            FunctionError: the function raised.
        """
        uris = {suffix: self._created(suffix) for suffix in self._outputs.suffixes}
        stands = {suffix: self._outputs.at(suffix) for suffix in self._outputs.suffixes}
        before = stands[""]
        after = before.after(batches)
        behind = [to for to in self._outputs.suffixes if stands[to].is_behind(after)]
        files: dict[str, list[TaskFile]] = {to: [] for to in behind}
        counts = dict.fromkeys(behind, FilterCounts())
        if any(batch.summary.rows > batch.rejected for each in batches.values() for batch in each):
            task = self._task({to: uris[to] for to in behind}, after, now())
            for to, report in self._run(task, before, after):
                if isinstance(report, TaskFile):
                    files[to].append(report)
                else:
                    counts[to] += report
        rows = {to: self._commit(uris[to], files[to], counts[to], stands[to], after) for to in behind}
        return Written(rows.get("", 0))

    def _task(self, uris: Mapping[str, str], after: Progress, now: datetime) -> WriteOutputs:
        several, signed = len(self._selected.reads) > 1, self._selected.signed
        # Rows that are taken back are of any day, and each would be a file of its own.
        day = [pa.field(DAY, pa.date32())] if signed else []
        return WriteOutputs(
            self._selected.name,
            outputs_of(self._selected),
            uris,
            {to: pa.schema([*self._schemas[to], *day]) for to in uris},
            self._selected.function,
            after.batch if several else None,
            to_micros(now),
            by_day=not signed,
        )

    def _run(
        self, task: WriteOutputs, before: Progress, after: Progress
    ) -> Iterator[tuple[str, TaskFile | FilterCounts]]:
        rows = {
            name: log.with_batches(self._spark, before.through[name], after.through[name])
            for name, log in self._logs.items()
        }
        reports = select_all(self._selected, rows).mapInArrow(task, WRITTEN).collect()
        for report in reports:
            if report["error"] is not None:
                raise FunctionError(report["error"])
        for report in reports:
            yield report["suffix"], of_report(report)

    def _commit(self, uri: str, files: Sequence[TaskFile], counts: FilterCounts, at: Progress, after: Progress) -> int:
        there = replace(after, counts=at.counts + counts, generation=at.generation)
        metadata = {
            "through": dict(after.through),
            "after": dict(at.through),
            "rows_in": counts.rows_in,
            "kept": counts.kept,
            "removed": counts.removed,
        }
        fence = partial(at.fence, self._selected)
        if not files:
            delta.note(uri, says=metadata, numbers=there.numbers(), fence=fence)
            return 0
        return delta.commit_files(uri, files, says=metadata, numbers=there.numbers(), fence=fence)

    def _created(self, suffix: str) -> str:
        uri = self._lake.table(self._selected, suffix)
        if suffix not in self._ready:
            schema = spark_schema(self._schemas[suffix])
            partitions = () if self._selected.signed else None
            create_table(self._lake, self._selected, suffix, schema, partition_by=partitions)
            # Where all columns are selected, one may have been added to the stream since.
            delta.widen(uri, schema)
            self._ready.add(suffix)
        return uri


@runtime_of.register
def _(operator: Selected, lake: Lake) -> OperatorRuntime:
    return SelectedRuntime(operator, lake)


class SelectedRuntime(SteppedRuntime[Selected, SelectedSteps]):
    """A selection runs in steps over its logs; nothing is kept from one to the next."""

    def unit_table(self, output: str = "") -> UnitTable:
        if self.operator.signed:
            raise self._would_follow("rows of a selection")
        return self._rows_by_batch(output)

    def analyse(self, spark: SparkSession, columns: Mapping[str, str]) -> None:
        _ = _SelectedAnalysis.once(spark, self.operator, columns).rows.schema

    @property
    def readable(self) -> Mapping[str, Callable[[SparkSession], DataFrame]]:
        outputs = {to or "current": partial(self.read, to) for to in outputs_of(self.operator)}
        return {**outputs, "signed": self._signed} if self.operator.signed else outputs

    def filtered(self) -> Mapping[str, FilterCounts]:
        """The counts of the filters of its outputs."""
        return filter_counts(self.lake, self.operator)

    def needs_since(self, spark: SparkSession | None, stream: Stream, since: Mapping[str, date]) -> date | None:
        return since[stream.name]

    def described(self, analysis: Mapping[str, Any]) -> dict[str, str]:
        return _described(self.lake, self.operator)

    def position(self) -> str:
        return _position(self.lake, self.operator)

    def versions(self) -> Mapping[str, int]:
        # Of one log, rows as of an older batch are told by themselves.
        return super().versions() if len(self.operator.reads) > 1 else versions_now(self.lake, self.operator)

    def first_at(self, spark: SparkSession, version: int) -> DataFrame:
        return self._standing(self._rows(spark, "", version), "")

    def pin(self, spark: SparkSession) -> PinnedTables[Selected]:
        return PinnedTables(self.operator, self.versions())

    def laws(
        self, spark: SparkSession, pinned: PinnedTables[Selected], logs: Mapping[str, LogAtVersion]
    ) -> Iterator[Finding]:
        return audit_selected(spark, self.lake, pinned, logs)

    def effects(self, spark: SparkSession, coming: Coming) -> Sequence[Effect]:
        selected = self.operator
        logs = coming.logs(spark, self.lake, selected.reads)
        if logs is None or not selected.signed:
            return ()
        rows = {name: coming.rows if name == coming.stream.name else log.limit(0) for name, log in logs.items()}
        frame = select_all(selected, rows)
        schemas = table_schemas(selected, columns_by_output(selected, frame))
        signed = {to: _handed_on(selected, to, frame, schemas[to]) for to in outputs_of(selected)}
        return tuple(effect_of_rows(selected, to, selected.result_name, rows) for to, rows in signed.items())

    def read(self, suffix: str, spark: SparkSession) -> DataFrame:
        """The rows of an output, in the order of the log.

        Raises:
            OperatorError: nothing is selected yet.
        """
        selected = self.operator
        table = require_table(self.lake, selected, suffix)
        of_one = len(selected.reads) == 1
        version = table.version() if of_one else version_read(self.lake, selected, table)
        rows = self._standing(self._rows(spark, suffix, version), suffix)
        return rows.orderBy(AT) if selected.signed and not suffix else self._in_order(rows, suffix)

    def _in_order(self, rows: DataFrame, suffix: str) -> DataFrame:
        return rows.orderBy(BATCH, ORIGIN, *([ELEMENT] if self.operator.makes_many(suffix) else []))

    def _signed(self, spark: SparkSession) -> DataFrame:
        table = require_table(self.lake, self.operator, "")
        return self._in_order(self._rows(spark, "", version_read(self.lake, self.operator, table)), "")

    def _standing(self, rows: DataFrame, suffix: str) -> DataFrame:
        """Those of the rows of an output that stand; of the operator's own the columns of what is current."""
        selected = self.operator
        if not selected.signed:
            return rows
        standing = selected_rows(rows, selected, suffix)
        return standing if suffix else standing.select(*(f"`{name}`" for name in selected.columns), DAY)

    def _rows(self, spark: SparkSession, suffix: str, version: int) -> DataFrame:
        """The rows of an output at a version, up to the batches as of which the lake is read."""
        selected, rows = self.operator, delta.read(spark, self.lake.table(self.operator, suffix), version)
        if self.lake.cut is None or len(selected.reads) > 1:
            return rows
        newest = head(self.lake, selected.reads[0])
        table = delta.open_table(self.lake.table(selected, suffix), version)
        check_followed(selected, Progress.of(selected, table).batch, newest)
        return rows.where(F.col(BATCH) <= (-1 if newest is None else newest.number))

    def _begun(self, spark: SparkSession) -> SelectedSteps:
        return SelectedSteps(spark, self.lake, self.operator)


def selected_rows(signed: DataFrame, selected: Selected, suffix: str = "") -> DataFrame:
    """The rows of an output that are added and not taken back, of its signed rows."""
    return net(signed, _identity(selected, suffix), [BATCH, ORIGIN]).drop(ADDED, SIGN)


def _identity(selected: Selected, suffix: str) -> list[str]:
    return [ADDED, *([ELEMENT] if selected.makes_many(suffix) else [])]


def _described(lake: Lake, selected: Selected) -> dict[str, str]:
    streams = " and ".join(stream.name for stream in selected.reads)
    function = "" if selected.function is None else f", then {selected.function.name}"
    tables = {
        to or "results": f"{'; '.join(side.fingerprint)}{'' if to else function}. {_counts(lake, selected, to)}"
        for to, side in selected.outputs.items()
    }
    return {
        **tables,
        "computed": f"valid rows of {streams} one by one, late or not; a step writes all outputs in one pass",
        **({"taken back": _TAKEN_BACK} if selected.signed else {}),
    }


def _counts(lake: Lake, selected: Selected, to: str) -> str:
    counts = Progress.of(selected, delta.open_table(lake.table(selected, to))).counts
    return f"{counted(counts.rows_in, 'row')} in, {counts.kept:,} kept, {counts.removed:,} removed"


def _position(lake: Lake, selected: Selected) -> str:
    at = Progress.of(selected, delta.open_table(lake.table(selected)))
    places = []
    for stream in selected.reads:
        newest = head(lake, stream)
        assert newest is not None
        place = f"batch {at.through[stream.name]:,} of {newest.number:,}"
        places.append(place if len(selected.reads) == 1 else f"{place} of {stream.name}")
    return f"{', '.join(places)}{built_anew(at.generation)}"


def audit_selected(
    spark: SparkSession, lake: Lake, pinned: PinnedTables[Selected], logs: Mapping[str, LogAtVersion]
) -> Iterator[Finding]:
    """The laws: what came to each filter was kept or removed, and each table holds what was kept and nothing else.

    Raises:
        OperatorError: nothing is selected yet.
    """
    selected = pinned.operator
    if pinned.versions[""] == delta.BEFORE:
        raise pinned.nothing_yet(lake, "selected")
    for to, version in pinned.versions.items() if selected.signed else ():
        if version != delta.BEFORE:
            yield are_net(selected, delta.read(spark, lake.table(selected, to), version), _identity(selected, to), to)
    since = whole_in(lake, selected, logs)
    if selected.diverts:
        yield from _audit_diverting(spark, lake, pinned, logs, since)
        return
    for to, version in pinned.versions.items():
        uri, name = lake.table(selected, to), selected.table_name(to)
        at = Progress.of(selected, delta.open_table(uri, version))
        candidates = [
            _candidates(selected.outputs[to], logs[stream.name].rows, at.through[stream.name])
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
        again = _handed_on(selected, to, frame, table_schemas(selected, columns_by_output(selected, frame))[to])
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


def _handed_on(selected: Selected, to: str, frame: DataFrame, schema: pa.Schema) -> DataFrame:
    """The rows of one output of a frame that `select_all` gave; `schema` are the columns of its table."""
    columns = schema.remove(schema.get_field_index(WRITTEN_AT))
    task = HandOn(selected.name, outputs_of(selected), to, selected.function, columns)
    return frame.mapInArrow(task, spark_schema(columns))


def _candidates(side: Side, log: DataFrame, through: int) -> DataFrame:
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
            *(column.alias(name) for name, column in _signs(selected, stream).items()),
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
