"""Current results of an operator, for everybody: a table of every change, and one of the results as they stand.

Changes are written first. The table of results follows them by revision, so that a process that dies in between leaves
nothing to compute: the next one brings the results up to the changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import partial, reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, IntegerType, LongType, StringType, StructField, StructType, TimestampType
from tenacity import Retrying, retry, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from streaming.base import (
    CLOCK,
    COPY,
    DAY,
    REASON,
    RETRACTED,
    REVISION,
    SIGN,
    FencedError,
    RewrittenError,
    canonical,
    date_literal,
    literal,
    python_values,
)
from streaming.changes.looks import ChangePosition, Corrected, Look, look_at, rows_as_texts
from streaming.declare import CHANGES, CURRENT, Operator
from streaming.lake import Lake
from streaming.operators import Finding, Law, about_table, comparable, declaration_properties
from streaming.tables import (
    WriteOthers,
    arrow_schema_of,
    contents_on,
    delta,
    files_added,
    groups_on,
    newest_commits,
    portions_of,
    rows_on,
)

_IN_MEMORY = 100_000
"""The most results that a look compares in memory, without Spark."""
_REVISION, _BEGINS, _RETOLD, _TAKEN_BACK = "revision", "begins", "retold", "taken_back"
"""Numbers of the tables: the newest revision; the first one that the changes have, the newest one that repeats what was
told before, and the newest that takes a result back."""
_ATTEMPTS = 5
_LAW, _WHY = "published", "why"
_WAS, _IS, _ROW, _NEWEST = "_was", "_is", "_row", "_newest"


def publish(spark: SparkSession, lake: Lake, operator: Operator) -> bool:
    """Publish what is current of an operator, as `Publishing.publish` does; nothing where nothing is corrected.

    Raises:
        FencedError: other processes were faster, time and again.
    """
    return bool(operator.published) and Publishing(lake, operator).publish(spark)


class Publishing:
    """The tables `<operator>_changes` and `<operator>_current` of an operator that corrects its results.

    Several processes may publish the same operator: each look follows from the one before, and of two at the same
    moment one begins again.
    """

    def __init__(self, lake: Lake, operator: Operator) -> None:
        self.operator = operator
        self._lake = lake
        self._changes, self._current = lake.table(operator, CHANGES), lake.table(operator, CURRENT)
        self._numbered = not operator.result_key

    def publish(self, spark: SparkSession) -> bool:
        """Write down what has changed since the last look, and bring the results up to it; tells if any has changed.

        Raises:
            FencedError: other processes were faster, time and again.
        """
        rivals = Retrying(
            retry=retry_if_exception_type(FencedError),
            stop=stop_after_attempt(_ATTEMPTS),
            wait=wait_random_exponential(0.05, max=1),
            reraise=True,
        )
        return rivals(self._publish, spark, begins=False)

    def begin_anew(self, spark: SparkSession) -> None:
        """Tell all that is current as the next revision, and forget what was told before.

        Raises:
            FencedError: another process publishes the operator.
        """
        self._publish(spark, begins=True)

    def revision(self) -> int:
        """The newest revision of the changes; -1 for none."""
        changes = delta.open_table(self._changes)
        return -1 if changes is None else revision_of(changes)

    def step(self) -> int:
        """The step of the operator that the newest look has seen; -1 for none."""
        return ChangePosition.of(delta.open_table(self._changes)).step

    def begins(self) -> int:
        """The first revision that the changes have; those before were forgotten, or of results of other types."""
        changes = delta.open_table(self._changes)
        return 0 if changes is None else first_revision(changes)

    def is_retold(self) -> bool:
        """True if the first revision tells what those that were forgotten had told."""
        changes = delta.open_table(self._changes)
        return changes is not None and _number(changes, _RETOLD) == _number(changes, _BEGINS) >= 0

    def why_begun(self) -> str:
        """In words, why revisions before the first one were forgotten; empty where nothing has another type."""
        changes = delta.open_table(self._changes)
        says = [] if changes is None else [commit["userMetadata"] for commit in newest_commits(changes)]
        return next((each[_WHY] for each in says if isinstance(each, dict) and each.get(_WHY)), "")

    def untold(self, spark: SparkSession) -> DataFrame | None:
        """The changes that the next look would tell, as the table has them; None where it would tell nothing."""
        before = ChangePosition.of(delta.open_table(self._changes))
        look = look_at(self.operator, self._lake)
        if look is None or (after := look.seen(before)) == before:
            return None
        days = look.days(spark, before)
        told = replace(after, revision=before.revision + 1)
        return None if days == frozenset() else self._differing(spark, look, before, told, days)

    def laws(self, spark: SparkSession) -> Iterator[Finding]:
        """Check that the table of results is what the operator's own tables say, and what the changes add up to."""
        name, current, changes = self.operator.name, delta.open_table(self._current), delta.open_table(self._changes)
        if current is None or changes is None:
            return
        at, columns = ChangePosition.of(changes), [*self.operator.columns, DAY]
        stored = delta.read(spark, self._current, current.version())
        look = look_at(self.operator, self._lake)
        if look is None or look.seen(at).of_generation != at.of_generation or revision_of(current) != at.revision:
            reason = "not compared: the next look follows what was built anew, or was not finished"
            yield Finding(_LAW, name, 0, 0, reason)
            return
        told = f"rows of {name}_{CURRENT}"
        try:
            newest = look.rows(spark, None if look.seen(at) == at or look.days(spark, at) == frozenset() else at)
        except DeltaError:
            yield Finding(_LAW, name, 0, 0, "not compared: the versions that the last look has read are gone")
            return
        words = f"{self.operator.current_meaning} = {told}"
        yield Law(_LAW, name, stored.select(*columns), newest.select(*columns), words).finding()
        signed = delta.read(spark, self._changes, changes.version())
        standing = _standing([signed], [*columns, *([COPY] if self._numbered else [])])
        words = f"changes up to revision {at.revision} added up = {told}"
        same = [*columns, *([COPY] if self._numbered else []), REASON, REVISION]
        yield Law(_LAW, name, stored.select(*same), standing.select(*same), words).finding()

    def _publish(self, spark: SparkSession, *, begins: bool) -> bool:
        changes = delta.open_table(self._changes)
        before, look = ChangePosition.of(changes), look_at(self.operator, self._lake)
        if look is not None and (begins or look.seen(before) != before):
            changes = self._look(spark, look, changes, before, begins=begins)
        return self._fold(spark, changes)

    def _look(
        self, spark: SparkSession, look: Look, changes: DeltaTable | None, before: ChangePosition, *, begins: bool
    ) -> DeltaTable:
        """Commit what the look finds, or that it finds nothing; returns the changes with it."""
        after, retells, others = look.seen(before), begins, ""
        schema = self._schema(look.columns, changes=True)
        if changes is None:
            changes = self._create(CHANGES, schema)
        elif after.of_generation != before.of_generation:
            others = self._other_types(changes, look.columns)
            begins = begins or bool(others)
        if not begins:
            # What was told before is compared with what has another field by now.
            delta.widen_open(changes, schema)
        told = replace(after, revision=before.revision + 1)
        staged = self._staged(spark, look, changes, before, told, begins=begins)
        if staged is None or not (staged.rows or begins):
            delta.note(self._changes, says=vars(after), numbers=vars(after), fence=_fence(self.operator, before))
            return changes
        numbers = dict(vars(told)) | ({_BEGINS: told.revision} if begins else {})
        numbers |= {_RETOLD: told.revision} if retells else {}
        if staged.least(SIGN) == -1:
            numbers[_TAKEN_BACK] = told.revision
        staged.commit({**numbers, _WHY: others}, numbers, fence=_fence(self.operator, before))
        return staged.table

    def _staged(
        self,
        spark: SparkSession,
        look: Look,
        changes: DeltaTable,
        before: ChangePosition,
        after: ChangePosition,
        *,
        begins: bool,
    ) -> delta.Staged | None:
        stage = partial(
            delta.stage_portions,
            self._changes,
            schema=self._schema(look.columns, changes=True),
            table=changes,
            statistics=(REVISION, SIGN),
        )
        appended = None if begins else self._appended_since(look, before)
        if appended is not None:
            return stage(self._told(rows, after) for rows in appended)
        self._fold(spark, changes)
        signed = None if begins else look.signed(before, _IN_MEMORY)
        if signed is not None:
            return stage([self._numbered_changes(signed, after)]) if signed.num_rows else None
        corrected = None if begins else look.corrected(before, _IN_MEMORY)
        if corrected is not None and (signed := self._corrected(corrected, before)) is not None:
            return stage([self._numbered_changes(signed, after)]) if signed.num_rows else None
        days = None if begins else look.days(spark, before)
        if days == frozenset():
            return None
        differing = self._differing(spark, look, None if begins else before, after, days)
        replaces = () if begins else None
        return delta.stage(differing, self._changes, statistics=(REVISION, SIGN), replaces=replaces)

    def _differing(
        self,
        spark: SparkSession,
        look: Look,
        before: ChangePosition | None,
        after: ChangePosition,
        days: Iterable[date] | None,
    ) -> DataFrame:
        """The changes of some days, or of all, since the position `before`; where that is None all that is current."""
        held = None if before is None else self._held(spark, before, look.columns)
        current = _on(look.rows(spark), days)
        changes = differences(current, None if held is None else _on(held, days), look.columns.names)
        clock = F.lit(None).cast("timestamp") if after.watermark is None else literal(after.watermark)
        changes = changes.withColumns({REVISION: F.lit(after.revision).cast("bigint"), CLOCK: clock})
        return changes.select(*self._schema(look.columns, changes=True).names)

    def _appended_since(self, look: Look, before: ChangePosition) -> Iterable[pa.Table] | None:
        """First results that a look finds added, where nothing else has changed; None where that takes Spark."""
        if not self._numbered:
            return look.appended_portions(before)
        # Copies are counted among all of them.
        rows = look.appended(before, _IN_MEMORY)
        return None if rows is None else [rows]

    def _told(self, rows: pa.Table, after: ChangePosition) -> pa.Table:
        """First results, none of which was there before, as changes."""
        if self._numbered:
            rows = rows.append_column(COPY, pa.array(_copies(rows), pa.int32()))
        return self._numbered_changes(_signed(rows, 1, "first"), after)

    def _numbered_changes(self, signed: pa.Table, after: ChangePosition) -> pa.Table:
        """Signed rows with the revision and the clock of a look."""
        return _with_values(
            signed,
            {
                REVISION: pa.scalar(after.revision, pa.int64()),
                CLOCK: pa.scalar(after.watermark, pa.timestamp("us", "UTC")),
            },
        )

    def _corrected(self, found: Corrected, before: ChangePosition) -> pa.Table | None:
        """The results that a look found corrected or added, as signed rows; None where too many are held of the days.

        Raises:
            FencedError: another process has told others meanwhile.
        """
        current = delta.open_table(self._current)
        if current is None or rows_on(current, found.days) > _IN_MEMORY:
            return None
        if revision_of(current) != before.revision:
            raise _overtaken(self.operator)
        names, key = found.appended.column_names, self.operator.result_key
        held = contents_on(current, found.days, names)
        places = {of_key: place for place, of_key in enumerate(rows_as_texts(held, key))}
        gone, there = list[int](), list[int]()
        values = rows_as_texts(found.corrected, names)
        keys = rows_as_texts(found.corrected, key)
        for place, (of_key, value) in enumerate(zip(keys, values, strict=True)):
            was = places.get(of_key)
            stands = not found.corrected[RETRACTED][place].as_py()
            if was is not None and stands and rows_as_texts(held.slice(was, 1), names) == [value]:
                continue
            gone += [] if was is None else [was]
            there += [place] if stands else []
        corrected = {*keys}
        is_first = pa.array([of_key not in corrected for of_key in rows_as_texts(found.appended, key)], pa.bool_())
        return pa.concat_tables(
            [
                _signed(held.take(pa.array(gone, pa.int64())), -1, "correction"),
                _signed(found.corrected.select(names).take(pa.array(there, pa.int64())), 1, "correction"),
                _signed(found.appended.filter(is_first), 1, "first"),
            ]
        )

    def _held(self, spark: SparkSession, before: ChangePosition, columns: StructType) -> DataFrame | None:
        """The results as they were told, with the `columns` that they have by now; None where there is no table.

        Raises:
            FencedError: another process has told others meanwhile.
        """
        table = delta.open_table(self._current)
        if table is None:
            return None
        if revision_of(table) != before.revision:
            raise _overtaken(self.operator)
        return _with(delta.read(spark, self._current, table.version()), columns)

    @retry(retry=retry_if_exception_type(RewrittenError), stop=stop_after_attempt(_ATTEMPTS), reraise=True)
    def _fold(self, spark: SparkSession, changes: DeltaTable | None) -> bool:
        """Bring the results up to the newest revision of the changes, if there are such; tells if any has changed."""
        if changes is None:
            return False
        wanted = self._folded_schema(changes)
        current = delta.open_table(self._current) or self._create(CURRENT, wanted)
        at, newest = revision_of(current), revision_of(changes)
        has_others = not {field.name for field in current.schema().fields} <= {*wanted.names}
        begins_anew = _number(changes, _BEGINS) > at >= 0
        if not begins_anew:
            delta.widen_open(current, wanted)
        if at >= newest and not has_others:
            return False
        taken_back = _number(changes, _TAKEN_BACK)
        if taken_back > at or begins_anew or has_others:
            staged = self._folded(spark, changes, current, wanted, begins_anew=begins_anew, has_others=has_others)
        else:
            staged = self._appended(changes, current, at, wanted)

        def fence(table: DeltaTable) -> None:
            if revision_of(table) != at:
                raise _overtaken(self.operator)

        numbers = {_REVISION: newest}
        staged.commit(numbers, numbers, fence=fence)
        return True

    def _appended(self, changes: DeltaTable, current: DeltaTable, at: int, wanted: StructType) -> delta.Staged:
        """Changes after the revision `at`, none of which takes a result back, as results."""
        told = portions_of(changes, _files_after(changes, at), wanted.names)
        rows = (portion.filter(pc.greater(portion[REVISION], at)) for portion in told)
        return delta.stage_portions(self._current, rows, wanted, table=current, statistics=(REVISION,))

    def _folded(
        self,
        spark: SparkSession,
        changes: DeltaTable,
        current: DeltaTable,
        wanted: StructType,
        *,
        begins_anew: bool,
        has_others: bool,
    ) -> delta.Staged:
        """The results of the days that later changes are of, as they are after these."""
        at = -1 if begins_anew else revision_of(current)
        is_same = {field.name for field in current.schema().fields} == {*wanted.names}
        if is_same and not begins_anew and _rows_after(changes, at) <= _IN_MEMORY:
            exchanged = self._exchanged(spark, delta.contents(changes, [(REVISION, ">", at)]), current, wanted)
            if exchanged is not None:
                return exchanged
        signed = delta.read(spark, self._changes, changes.version()).where(F.col(REVISION) > at)
        held = delta.read(spark, self._current, current.version()).withColumn(SIGN, F.lit(1))
        days = {row[DAY] for row in signed.select(DAY).distinct().collect()}
        everything = begins_anew or has_others or None in days
        if not everything:
            held = _on(held, days)
        names = [name for name in wanted.names if name not in (REASON, REVISION)]
        parts = [_with(part, signed.schema) for part in ([signed] if begins_anew else [signed, held])]
        rows = _standing(parts, names).select(*wanted.names)
        replaces = () if everything else delta.are_of(days)
        return delta.stage(rows, self._current, statistics=(REVISION,), replaces=replaces)

    def _exchanged(
        self, spark: SparkSession, told: pa.Table, current: DeltaTable, wanted: StructType
    ) -> delta.Staged | None:
        """The results that changes of the same identity add, and others that share a file with one they take back.

        The identity of a result is its key, or else all of its values with the number of its copy. None where one that
        is taken back is not there by its values, as where one zero has a sign and the other has none.
        """
        others = (REASON, REVISION, DAY)
        key = [*self.operator.result_key] or [name for name in wanted.names if name not in others]
        taken_back = told.filter(pc.less(told[SIGN], 0))
        if pc.count_distinct(told[REVISION]).as_py() == 1:
            # A revision adds an identity once at most, and takes it back once at most.
            standing, gone = told.filter(pc.greater(told[SIGN], 0)), taken_back.num_rows
        else:
            standing, gone = _outcome(told, key)
        stored = pa.schema([field for field in arrow_schema_of(current) if field.name != DAY])
        outdated = taken_back.select(key).cast(pa.schema([stored.field(name) for name in key]))
        groups = groups_on(current, {*taken_back[DAY].to_pylist()})
        task = WriteOthers(self._current, stored, (REVISION,), outdated, groups)
        # A job of Spark costs more than to read few rows.
        replaced = task.run() if sum(group.rows for group in groups) <= _IN_MEMORY else task.run_by(spark)
        if replaced.rows != gone:
            return None
        added = delta.stage_rows(
            self._current,
            standing.select(wanted.names),
            wanted,
            table=current,
            statistics=(REVISION,),
        )
        return added.replacing(replaced.files, replaced.paths)

    def _folded_schema(self, changes: DeltaTable) -> StructType:
        """The columns of the table of results, as far as an open table of changes has them, and of the same types."""
        types = _types(changes)
        columns = [StructField(name, types[name]) for name in (*self.operator.columns, DAY) if name in types]
        return self._schema(StructType(columns), changes=False)

    def _schema(self, columns: StructType, *, changes: bool) -> StructType:
        """The columns of one of the two tables."""
        copy = [StructField(COPY, IntegerType())] if self._numbered else []
        sign, clock = [StructField(SIGN, IntegerType())], [StructField(CLOCK, TimestampType())]
        told = [StructField(REASON, StringType()), StructField(REVISION, LongType())]
        return StructType([*columns, *copy, *(sign if changes else []), *told, *(clock if changes else [])])

    def _create(self, suffix: str, schema: StructType) -> DeltaTable:
        """One of the two tables, created empty if it is not there yet."""
        spec = next(spec for spec in self.operator.published if spec.suffix == suffix)
        return delta.create(
            self._lake.table(self.operator, suffix),
            schema,
            append_only=False,
            description=spec.description,
            # Changes are of days long gone, each of which would be a file of its own in every revision.
            partition_by=[DAY] if suffix == CURRENT else [],
            properties=declaration_properties(self.operator),
            about=about_table(self.operator, suffix),
        )

    def _other_types(self, changes: DeltaTable, columns: StructType) -> str:
        """In words, which column has another type than in an open table of changes; empty where none has."""
        types = _types(changes)
        for field in delta.nullable(self._schema(columns, changes=True)):
            was = types.get(field.name, field.dataType)
            if was != field.dataType:
                return f"column {field.name!r} was {was.simpleString()} and is {field.dataType.simpleString()} now"
        return "" if (COPY in types) == self._numbered else "results are known by other columns now"


def first_revision(changes: DeltaTable) -> int:
    """The first revision that an open table of changes has; another one once all of it was told anew."""
    return max(0, _number(changes, _BEGINS))


def differences(
    current: DataFrame, held: DataFrame | None, columns: Sequence[str], reason: str | None = None
) -> DataFrame:
    """The changes that take `held` results to those that are `current`: `columns`, `_copy`, `_change`, `_reason`.

    The `reason` is that of all that is added; without it `current` has one in each row.
    """
    told = [REASON] if reason is None else []
    quoted = [f"`{name}`" for name in columns]
    parts = [current.select(*quoted, *told, F.lit(1).alias(SIGN))]
    if held is not None:
        why = [F.lit("correction").alias(name) for name in told]
        parts.append(held.select(*quoted, *why, F.lit(-1).alias(SIGN)))
    sign, was, now = F.col(SIGN), F.col(_WAS), F.col(_IS)
    counts = {
        _WAS: F.count(F.when(sign < 0, True)).cast("int"),
        _IS: F.count(F.when(sign > 0, True)).cast("int"),
        **{name: F.max(F.when(sign > 0, F.col(name))) for name in told},
    }
    copies = F.when(now > was, F.sequence(was + 1, now)).otherwise(F.sequence(now + 1, was))
    added = F.col(REASON) if reason is None else F.lit(reason)
    return (
        _by_values(parts, columns, counts)
        .where(was != now)
        .select(
            f"{_ROW}.*",
            F.explode(copies).alias(COPY),
            F.when(now > was, 1).otherwise(-1).alias(SIGN),
            F.when(now > was, added).otherwise("correction").alias(REASON),
        )
    )


def _standing(parts: Sequence[DataFrame], columns: Sequence[str]) -> DataFrame:
    """The results that stand after signed rows: `columns`, which have `_copy` if any do, `_reason`, `_revision`."""
    told = F.struct(REVISION, REASON)
    counts = {_IS: F.sum(SIGN).cast("int"), _NEWEST: F.max(F.when(F.col(SIGN) > 0, told))}
    standing = _by_values(parts, columns, counts).where(F.col(_IS) > 0)
    return standing.select(f"{_ROW}.*", f"{_NEWEST}.{REASON}", f"{_NEWEST}.{REVISION}")


def _by_values(parts: Sequence[DataFrame], columns: Sequence[str], of_each: Mapping[str, Column]) -> DataFrame:
    """One row for all that have the same values in `columns`: `_row`, which has these, and what is asked `of_each`."""
    rows = reduce(DataFrame.unionByName, parts)
    names = [f"_key{place}" for place, _ in enumerate(columns)]
    keys = [comparable(rows, name).alias(key) for name, key in zip(columns, names, strict=True)]
    aggregates = [column.alias(name) for name, column in of_each.items()]
    if any(_has_other_form(rows.schema[name].dataType.simpleString()) for name in columns):
        row = F.first(F.struct(*(F.col(f"`{name}`") for name in columns))).alias(_ROW)
        return rows.groupBy(*keys).agg(row, *aggregates)
    # Spark sorts rows to aggregate structs.
    row = F.struct(*(F.col(key).alias(name) for name, key in zip(columns, names, strict=True))).alias(_ROW)
    return rows.groupBy(*keys).agg(*aggregates).select(row, *of_each)


def _has_other_form(type_: str) -> bool:
    """True where values that differ, such as two zeros, may be equal, or have a form of their own to be compared in.

    The type is in the words of Spark or Arrow, which have these in common.
    """
    return any(each in type_ for each in ("map<", "float", "double"))


def _on(rows: DataFrame, days: Iterable[date] | None) -> DataFrame:
    """The rows of some days; all of them where none are named."""
    return rows if days is None else rows.where(F.col(DAY).isin(*(date_literal(day) for day in sorted(days))))


def _with(rows: DataFrame, columns: StructType) -> DataFrame:
    """The rows with just these columns; null in one that they do not have."""
    return rows.select(
        *(
            F.col(f"`{field.name}`")
            if field.name in rows.columns
            else F.lit(None).cast(field.dataType).alias(field.name)
            for field in columns
        )
    )


def _signed(rows: pa.Table, sign: int, reason: str) -> pa.Table:
    return _with_values(rows, {SIGN: pa.scalar(sign, pa.int32()), REASON: pa.scalar(reason)})


def _with_values(rows: pa.Table, values: Mapping[str, pa.Scalar]) -> pa.Table:
    """The rows with columns that have one value."""
    for name, value in values.items():
        rows = rows.append_column(name, pa.repeat(value, rows.num_rows))
    return rows


def _outcome(told: pa.Table, key: Sequence[str]) -> tuple[pa.Table, int]:
    """The rows of several revisions that stand after them, and the number of those before that are taken back."""
    told = told.sort_by([(REVISION, "ascending"), (SIGN, "ascending")])
    identities, signs = rows_as_texts(told, key), told[SIGN].to_pylist()
    newest = {identity: place for place, identity in enumerate(identities)}
    oldest = dict(zip(reversed(identities), reversed(signs), strict=True))
    stands = pa.array([place for place in newest.values() if signs[place] > 0], pa.int64())
    return told.take(stands), sum(sign < 0 for sign in oldest.values())


def _copies(rows: pa.Table) -> list[int]:
    """For each row the number of those before it that are equal to it for Spark, and one."""
    columns = [
        map(_form, python_values(column)) if _has_other_form(str(column.type)) else python_values(column)
        for column in rows.columns
    ]
    seen: Counter[str] = Counter()
    copies = []
    for row in map(repr, zip(*columns, strict=True)):
        seen[row] += 1
        copies.append(seen[row])
    return copies


def _form(value: Any) -> Any:
    """The one form of all values that are equal for Spark: 0.0 for -0.0, a map in the order of its keys."""
    if isinstance(value, dict):
        return sorted(((_form(key), _form(each)) for key, each in value.items()), key=repr)
    if isinstance(value, (list, tuple)):
        return [_form(each) for each in value]
    return canonical(value)


def _rows_after(changes: DeltaTable, revision: int) -> int:
    """The number of rows in files that have later revisions."""
    return pc.sum(_files_after(changes, revision)["num_records"]).as_py() or 0


def _files_after(changes: DeltaTable, revision: int) -> pa.Table:
    """The files that have later revisions, as `files_added` lists them."""
    files = files_added(changes)
    if f"max.{REVISION}" not in files.column_names:
        return files
    # A file whose bounds nobody knows may have any revision.
    return files.filter(pc.fill_null(pc.greater(files[f"max.{REVISION}"], revision), True))


def revision_of(table: DeltaTable) -> int:
    """The newest revision that an open table holds; -1 for none."""
    return _number(table, _REVISION)


def _number(table: DeltaTable, name: str) -> int:
    number = table.transaction_version(name)
    return -1 if number is None else number


def _types(table: DeltaTable) -> dict[str, DataType]:
    """The type of each column of an open table."""
    return {field.name: field.dataType for field in delta.columns_of(table)}


def _fence(operator: Operator, before: ChangePosition) -> delta.Fence:
    """The fence of a look that follows from the position `before`."""

    def fence(table: DeltaTable) -> None:
        if ChangePosition.of(table) != before:
            raise _overtaken(operator)

    return fence


def _overtaken(operator: Operator) -> FencedError:
    return FencedError(
        f"another process writes down what has changed of {operator.kind_name} {operator.name!r} at this moment. "
        "Nothing is lost: the next look finds what this one has found."
    )
