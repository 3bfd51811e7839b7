"""A replay of a sample of the logs through a declaration, beside what is published, in a place that goes afterwards."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streaming.base import (
    COPY,
    DAY,
    FIRST_INSTANT,
    INGESTED_AT,
    DeclarationError,
    F,
    OperatorError,
    counted,
    date_literal,
    names_in,
    utc_now,
)
from streaming.declare import CURRENT, Operator, Rule, Stream
from streaming.lake import Lake, Sample
from streaming.log import declaration_changes_of, head, read_log, valid, validate
from streaming.operations.repair import count_kept_back, judged_anew
from streaming.operators import are_close, comparable, runtime_of
from streaming.tables import delta, storage

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

OUTCOME, DIFFERENT, ADDED, GONE = "outcome", "different", "added", "gone"
"""The column that tells what a replay means for a result, and its values."""
_FOLDER = "_as_of"


@dataclass(frozen=True)
class Replay:
    """The results of a sample by a declaration, held against those that are published.

    `sample` says in words which rows were replayed, and `caveat` what it cannot tell; empty where it tells all. A
    result is `equal`, `different`, `added` or `gone` by its `key`, or where there is none by all its values. `rows` has
    those that are not equal, as many as were asked for: `outcome`, the key, then `x before` and `x after` for each
    value.
    """

    operator: str
    sample: str
    key: tuple[str, ...]
    equal: int
    different: int
    added: int
    gone: int
    rows: pa.Table = field(repr=False)
    caveat: str = ""

    @property
    def values(self) -> tuple[str, ...]:
        """The columns of `rows` with values before and after."""
        return tuple(self.rows.column_names[1 + len(self.key) :])

    def __str__(self) -> str:
        counts = f"{self.equal:,} equal, {self.different:,} different, {self.added:,} added, {self.gone:,} gone"
        return f"{self.operator}, {self.sample}: {counts}"


@dataclass(frozen=True)
class Judgement:
    """The rows of a sample of a stream's log as its rules of today judge them.

    `rejected`: of the `valid` rows, those that each new or changed rule would reject, by its name, and `in_all` those
    that any of them would. `accepted`: of the `refused` rows, those that would be valid. `not_asked`: new or changed
    rules over masked columns, which nobody can ask of rows that came.
    """

    stream: str
    sample: str
    valid: int
    rejected: Mapping[str, int]
    in_all: int
    refused: int
    accepted: int
    not_asked: tuple[str, ...] = ()

    def __str__(self) -> str:
        by_rule = ", ".join(f"{name} {count:,}" for name, count in self.rejected.items())
        names = ", ".join(self.not_asked)
        unasked = f"; {names} cannot be asked of rows that came, as what came is masked" if names else ""
        return (
            f"{self.stream}, {self.sample}: of {counted(self.valid, 'valid row')} {self.in_all:,} would be rejected"
            f"{f' ({by_rule})' if by_rule else ''}; of {counted(self.refused, 'rejected row')} {self.accepted:,} would "
            f"be valid{unasked}"
        )


def replay(
    spark: SparkSession,
    lake: Lake,
    operator: Operator,
    *,
    days: int | None = None,
    keys: Mapping[str, Sequence[Any]] | None = None,
    limit: int = 20,
    now: Callable[[], datetime] = utc_now,
) -> Replay:
    """Replay the last `days` of the logs, or the rows of some `keys`, through an operator as it is declared.

    `keys` are values by column, such as `{"origin": ["LGA"]}`, of the streams and of the results. Steps and corrections
    are those of a rebuild, in a folder that is removed afterwards; no table of the lake is written. Of days, results
    that may be made of earlier rows are left out.

    Raises:
        DeclarationError: a key is no column of the streams or of the results.
        OperatorError: it cannot be built from the logs, or its logs lack a column that no run has brought yet.
    """
    if operator.never_rebuilt:
        raise OperatorError(
            f"{operator.kind_name} {operator.name!r} cannot be replayed: {operator.never_rebuilt}.",
            operator=operator.name,
        )
    for stream in operator.reads:
        _check_columns(lake, stream)
    since = None if days is None else _first_of(spark, lake, operator, days)
    where = None if not keys else _condition(operator, keys)
    sample = Sample(None if since is None else since - _margin(operator), where)
    with _scratch(lake) as folder:
        there = replace(lake.with_recomputed([operator], folder), sample=sample)
        with closing(runtime_of(operator, there)) as runtime:
            for step in runtime.steps(spark, now):
                step.run()
            newest = head(lake, operator.reads[0])
            if newest is not None:
                runtime.catch_up(spark, newest, now)
            pending = [entry.day for entry in runtime.plan(spark)]
            if pending:
                runtime.correct(spark, pending, now)
            is_there = delta.exists(there.table(operator))
            after = runtime.current_at(spark, runtime.versions()) if is_there else None
            return _compared(spark, lake, operator, after, since, where, limit)


def judge(spark: SparkSession, lake: Lake, stream: Stream, *, days: int, now: datetime) -> Judgement:
    """Judge the rows of the last `days` of a stream's log by its rules of today; nothing is written.

    Valid rows are asked by rules that are new or changed and reject rows, but for rules over masked columns; rejected
    ones are judged as a repair judges them.
    """
    came = stream.revisions
    newest = valid(read_log(spark, lake, came)).agg(F.max(DAY)).collect()[0][0]
    since = None if newest is None else newest - timedelta(days=days - 1)
    rows = valid(read_log(spark, replace(lake, sample=Sample(since)), came))
    changed = [rule for rule in _changed_rules(lake, stream) if rule.rejects]
    rules = [rule for rule in changed if not names_in(rule.condition) & stream.masked_columns]
    not_asked = tuple(rule.name for rule in changed if rule not in rules)
    refused = {rule.name: F.count_if(validate.broken(rule)).alias(rule.name) for rule in rules}
    any_of = reduce(lambda one, other: one | other, map(validate.broken, rules), F.lit(False))
    counts = rows.agg(F.count(F.lit(1)).alias("_valid"), F.count_if(any_of).alias("_all"), *refused.values()).collect()[
        0
    ]
    anew = judged_anew(spark, lake, came, now)
    if since is not None:
        anew = anew.where(F.coalesce(F.col(DAY), F.to_date(INGESTED_AT)) >= date_literal(since))
    examined, accepted = anew.agg(F.count(F.lit(1)), F.count(DAY)).collect()[0]
    if since is None or now.date() >= since:
        examined += count_kept_back(spark, lake, came)
    by_rule, told = {name: counts[name] for name in refused}, _days_told(since)
    return Judgement(stream.name, told, counts["_valid"], by_rule, counts["_all"], examined, accepted, not_asked)


def _changed_rules(lake: Lake, stream: Stream) -> list[Rule]:
    """The rules that the newest batches were not judged by; all where nobody has written those down."""
    changes = declaration_changes_of(lake, stream)
    names = None if changes is None else {change.part for change in changes if change.fact == "rule"}
    return [rule for rule in stream.rules if names is None or rule.name in names]


def _check_columns(lake: Lake, stream: Stream) -> None:
    log = delta.open_table(lake.log(stream))
    there = set() if log is None else {each.name for each in log.schema().fields}
    lacking = [name for name in stream.columns if name not in there]
    if lacking:
        raise OperatorError(
            f"the log of stream {stream.name!r} has no column {lacking[0]!r} yet, as no run has had this declaration.",
            f"Run `tidemark run {stream.name}` first.",
            stream=stream.name,
            column=lacking[0],
        )


def _first_of(spark: SparkSession, lake: Lake, operator: Operator, days: int) -> date | None:
    """The first of the last `days` of the logs; None where there is no row, or results have no day."""
    newest = (valid(read_log(spark, lake, stream)).agg(F.max(DAY)).collect()[0][0] for stream in operator.follows)
    last = max((day for day in newest if day is not None), default=None)
    return (
        None
        if last is None or (operator.reach is None and not _remembers(operator))
        else last - timedelta(days=days - 1)
    )


def _margin(operator: Operator) -> timedelta:
    """The whole days before a sample of which rows may be part of its first results."""
    reach = operator.reach or timedelta()
    return timedelta(days=-(-reach // timedelta(days=1)) + 1)


def _remembers(operator: Operator) -> bool:
    """True where results may follow from rows of any time before, by way of state."""
    windows = operator.reach and operator.first_begin(FIRST_INSTANT + timedelta(days=36_500)) is not None
    return any(spec.is_state for spec in operator.tables) and not windows


def _condition(operator: Operator, keys: Mapping[str, Sequence[Any]]) -> str:
    for name in keys:
        offered = [stream.columns for stream in operator.follows] + [operator.columns]
        if any(name not in columns for columns in offered):
            common = [each for each in operator.columns if all(each in columns for columns in offered)]
            raise DeclarationError(
                f"{operator.kind_name} {operator.name!r} cannot be replayed by {name!r}, which is no column of both "
                f"its streams and its results; these are: {', '.join(common) or 'none'}.",
                operator=operator.name,
                value=name,
                choices=tuple(common),
            )
    values = {name: ", ".join(map(_literal, each)) for name, each in keys.items()}
    return " and ".join(f"`{name}` in ({each})" for name, each in values.items())


def _literal(value: object) -> str:
    text = str(value).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{text}'"


@contextmanager
def _scratch(lake: Lake) -> Iterator[str]:
    """A folder outside of the lake; where that is not of this machine, one that the workers reach, as for reads of old.

    Of a process that dies there `tidemark maintain` removes the latter.
    """
    if lake.local() is not None:
        with tempfile.TemporaryDirectory(prefix="tidemark-replay-") as folder:
            yield folder
        return
    folder = lake.path(_FOLDER, uuid.uuid4().hex)
    try:
        yield folder
    finally:
        storage.remove_folder(folder)


def _compared(
    spark: SparkSession,
    lake: Lake,
    operator: Operator,
    after: DataFrame | None,
    since: date | None,
    where: str | None,
    limit: int,
) -> Replay:
    uri = next((each for each in (lake.table(operator, CURRENT), lake.table(operator)) if delta.exists(each)), None)
    before = None if uri is None else delta.read(spark, uri)
    if before is None and after is None:
        return Replay(
            operator.name, _told(since, where), (), 0, 0, 0, 0, pa.table({OUTCOME: pa.array([], pa.string())})
        )
    before = after.limit(0) if before is None and after is not None else before
    after = before.limit(0) if after is None and before is not None else after
    assert before is not None and after is not None
    before, after = (_of_sample(rows, since, where) for rows in (before, after))
    common = [name for name in before.columns if name in after.columns and not name.startswith("_")]
    key = tuple(operator.paired_by) if {*operator.paired_by} <= {*common} else ()
    names = [name for name in dict.fromkeys((*before.columns, *after.columns)) if not name.startswith("_")]
    by, values = (key, [name for name in names if name not in key]) if key else (tuple(common), [])
    before, after = _of_like_types(before, after, common)
    before, after = _numbered(before, by, values), _numbered(after, by, values)
    joined = _joined(before, after, (*by, COPY), values).persist()
    try:
        counts = {row[OUTCOME]: row["count"] for row in joined.groupBy(OUTCOME).count().collect()}
        order = [comparable(joined, name) for name in by]
        shown = joined.where(F.col(OUTCOME) != "equal").orderBy(*order, OUTCOME).limit(limit).drop(COPY).toArrow()
    finally:
        joined.unpersist()
    caveat = ""
    if since is not None and _remembers(operator):
        caveat = f"what {operator.name} remembers from before {since - _margin(operator)} is not in the sample"
    equal, different, added, gone = (counts.get(name, 0) for name in ("equal", DIFFERENT, ADDED, GONE))
    return Replay(operator.name, _told(since, where), key, equal, different, added, gone, shown, caveat)


def _of_sample(rows: DataFrame, since: date | None, where: str | None) -> DataFrame:
    if since is not None and DAY in rows.columns:
        rows = rows.where(F.col(DAY) >= date_literal(since))
    return rows if where is None else rows.where(where)


def _of_like_types(one: DataFrame, other: DataFrame, names: Sequence[str]) -> tuple[DataFrame, DataFrame]:
    """Both frames, with values as texts where their types differ so that Spark may fail to compare them."""
    from pyspark.sql.types import NumericType

    for name in names:
        types = [rows.schema[name].dataType for rows in (one, other)]
        if len({each.simpleString() for each in types}) > 1 and not all(
            isinstance(each, NumericType) for each in types
        ):
            one, other = (rows.withColumn(name, _text(rows, name)) for rows in (one, other))
    return one, other


def _text(rows: DataFrame, name: str) -> Column:
    nested = rows.schema[name].dataType.simpleString().startswith(("array", "map", "struct"))
    return F.to_json(F.col(f"`{name}`")) if nested else F.col(f"`{name}`").cast("string")


def _numbered(rows: DataFrame, by: Sequence[str], values: Sequence[str]) -> DataFrame:
    """The rows with a number, from 1 on, among those with the same values of `by`."""
    from pyspark.sql import Window

    there = [name for name in values if name in rows.columns]
    order = [comparable(rows, name) for name in there] or [F.lit(1)]
    same = Window.partitionBy(*(comparable(rows, name) for name in by)).orderBy(*order)
    return rows.select(*(f"`{name}`" for name in (*by, *there)), F.row_number().over(same).alias(COPY))


def _joined(before: DataFrame, after: DataFrame, key: Sequence[str], values: Sequence[str]) -> DataFrame:
    """Each result of either side with its outcome: the key, then each value before and after."""
    there = F.lit(True).alias("_there")
    one = before.select(*_all(before, (*key, *values)), there).alias("before")
    other = after.select(*_all(after, (*key, *values)), there).alias("after")
    same = [_comparable(one, "before", name).eqNullSafe(_comparable(other, "after", name)) for name in key]
    is_before, is_after = F.col("before._there").isNotNull(), F.col("after._there").isNotNull()
    common = [name for name in values if name in before.columns and name in after.columns]
    equal = reduce(and_, (_is_equal(one, other, name) for name in common), F.lit(len(common) == len(values)))
    outcome = (
        F.when(~is_before, F.lit(ADDED)).when(~is_after, F.lit(GONE)).when(equal, F.lit("equal")).otherwise(DIFFERENT)
    )
    return one.join(other, reduce(and_, same, F.lit(True)), "full_outer").select(
        outcome.alias(OUTCOME),
        *(F.coalesce(f"before.`{name}`", f"after.`{name}`").alias(name) for name in key),
        *(
            F.col(f"{side}.`{name}`").alias(f"{name} {side}")
            for name in values
            for side, rows in (("before", before), ("after", after))
            if name in rows.columns
        ),
    )


def _all(rows: DataFrame, names: Sequence[str]) -> list[str]:
    return [f"`{name}`" for name in names if name in rows.columns]


def _comparable(rows: DataFrame, side: str, name: str) -> Column:
    if "map<" in rows.schema[name].dataType.simpleString():
        return F.to_json(F.struct(F.col(f"{side}.`{name}`")))
    return F.col(f"{side}.`{name}`")


def _is_equal(one: DataFrame, other: DataFrame, name: str) -> Column:
    from pyspark.sql.types import DoubleType, FloatType, NumericType

    left, right = _comparable(one, "before", name), _comparable(other, "after", name)
    types = [rows.schema[name].dataType for rows in (one, other)]
    if all(isinstance(each, NumericType) for each in types):
        doubles = (each for each in types if isinstance(each, DoubleType | FloatType))
        return are_close(left, right, next(doubles, types[0]))
    # Whether parts of a value may be null is part of its type, and means nothing here.
    is_one_type = types[0].simpleString() == types[1].simpleString() and "map<" not in types[0].simpleString()
    if is_one_type:
        return are_close(left, right, types[0])
    # Spark refuses to compare some pairs of types, and fails at values that are not of the other one.
    return left.cast("string").eqNullSafe(right.cast("string"))


def _told(since: date | None, where: str | None) -> str:
    return (
        _days_told(since) if where is None else f"where {where}" + ("" if since is None else f", {_days_told(since)}")
    )


def _days_told(since: date | None) -> str:
    return "all rows" if since is None else f"from {since} on"
