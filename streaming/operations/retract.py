"""Retractions: valid rows that are wrong are taken back by hand, as a batch of the log, and can be put back.

The log alone decides: a row of it takes back another one of the same origin, and what it takes back stays there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from itertools import product
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import Window as SortedBy
from pyspark.sql import functions as F

from streaming.base import (
    ADDED,
    BATCH,
    DAY,
    INGESTED_AT,
    ORIGIN,
    RetractionError,
    StreamingError,
    check_condition,
    utc_now,
)
from streaming.declare import CURRENT, Operator, Pipeline, Stream, declared_pipelines
from streaming.lake import Lake
from streaming.log import (
    RETRACTION,
    RETRACTS,
    Batch,
    Retraction,
    append_retraction,
    can_retract,
    head,
    identity_of_row,
    log_schema,
    next_state,
    read_batches,
    read_log,
    retraction_of,
    valid,
    widen_log,
)
from streaming.operations.repair import pins_now
from streaming.operators import ChangedWindow, Coming, Effect, at_batch, counts_of, runtime_of
from streaming.revisions import SEQUENCE, Revising, net, sequence_of
from streaming.service import take_lease
from streaming.spark import cause_in_words, function_errors, refusal
from streaming.tables import delta

_EXAMPLES = 5
_PLACE, _NUMBER, _RETRACTED = "_place", "_retraction", "_retracted_batch"


@dataclass(frozen=True)
class Follower:
    """A stream, operator or delivery that reads what is current of an operator, `of`, whose results would change.

    It `looks_up` answers there where rows that come from then on see them; others follow, and are told of each change.
    """

    kind: str
    name: str
    pipeline: str
    of: str
    looks_up: bool = False

    def __str__(self) -> str:
        does = "looks up" if self.looks_up else "follows"
        then = "which rows from then on see changed" if self.looks_up else "and is told of each change"
        return f"{self.kind} {self.name} of pipeline {self.pipeline} {does} {self.of}, {then}"


@dataclass(frozen=True)
class RetractionPreview:
    """The preview of a retraction: its rows, by the day of their event time, and a few of them.

    `effects`: for each table of an operator that follows the stream what would change. `unknown`: why it cannot be told
    of the others, by their names. `followers`: who reads what is current of these operators, at any depth.
    """

    stream: str
    rows: int
    days: Mapping[date, int]
    examples: tuple[Mapping[str, Any], ...]
    effects: tuple[Effect, ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)
    followers: tuple[Follower, ...] = ()

    @property
    def changes(self) -> dict[str, tuple[ChangedWindow, ...]]:
        """The windows that would be others, per view, window join or co-group."""
        return {each.table: each.windows for each in self.effects if each.windows is not None}

    @property
    def due(self) -> dict[str, tuple[date, ...]]:
        """The days that would wait for a correction, by the name of the operator.

        The clock has passed them: their first results count the rows, published or about to be.
        """
        return {each.table: each.due for each in self.effects if each.due is not None}


@dataclass(frozen=True)
class RowChoice:
    """The rows to be taken back or put back: those that a condition chooses, or those of a retraction.

    Raises:
        RetractionError: it is neither, or both.
    """

    where: str | None = None
    undoes: int | None = None

    def __post_init__(self) -> None:
        if (self.where is None) == (self.undoes is None):
            raise RetractionError(
                f"where={self.where!r} and undo={self.undoes!r} do not say which rows are meant",
                "Give a condition, or the id of the retraction that is to be taken back.",
            )


def find_retractable(pipeline: Pipeline, stream: str | None) -> Stream:
    """The stream of that name, or the only one of the pipeline.

    Raises:
        RetractionError: with those there are.
    """
    names = tuple(each.name for each in pipeline.streams)
    if stream is None and len(names) == 1:
        return pipeline.stream
    if stream not in names:
        raise RetractionError(
            f"pipeline {pipeline.name!r} has no stream {stream!r}"
            if stream is not None
            else f"pipeline {pipeline.name!r} has several streams, and none is named",
            f"Name one of them: {', '.join(names)}.",
            pipeline=pipeline.name,
            choices=names,
        )
    return next(each for each in pipeline.streams if each.name == stream)


def retract(
    spark: SparkSession,
    lake: Lake,
    pipeline: Pipeline,
    stream: Stream,
    chosen: RowChoice,
    reason: str,
    who: str,
    now: Callable[[], datetime] = utc_now,
) -> Retraction | None:
    """Take back the rows that stand and are chosen, in one commit; None where there is no such row.

    Each comes once more, with its values and its origin, marked as taking back the row of that batch. It is stamped
    like any row that comes now: where its window is closed, a correction takes the row out. What undoes a retraction
    puts its rows back in the same way, but for those that somebody has put back already, and those of a key that has a
    newer revision.

    Raises:
        LeaseError: the pipeline is running.
        LogError: nothing has been ingested yet.
        RetractionError: an operator, a delivery or a stream takes each row for one that stands, there is no reason, or
            the condition cannot be computed; nothing was written.
    """
    if not reason.strip():
        raise RetractionError("the reason of a retraction is empty", "Say why the rows are wrong; it stays in the log.")
    check_retractable(pipeline, stream)
    processed_at = now()
    came = stream.revisions
    with take_lease(lake, pipeline):
        newest = _head(spark, lake, stream, chosen)
        widen_log(spark, lake, came)
        runtimes = [runtime_of(operator, lake) for operator in pipeline.operators_of(stream)]
        counts = counts_of(runtimes, stream)
        revising = Revising(spark, lake, stream, counts) if stream.revised else None
        if revising is not None:
            # What stands follows from all that came.
            revising.follow(processed_at)
        rows = _coming(spark, lake, stream, chosen).persist()
        try:
            if not _computed(rows.count, stream, chosen):
                return None
            told = {"who": who, "reason": reason, "where": chosen.where, "undoes": chosen.undoes}
            pinned = pins_now(lake, pipeline, stream)
            of_log = {} if stream.revised else counts
            batch = append_retraction(rows, lake, came, newest, processed_at, of_log, told, pinned)
        finally:
            rows.unpersist()
        if revising is not None:
            revising.follow(processed_at)
    return Retraction.of(stream, batch)


def preview_retraction(
    spark: SparkSession, lake: Lake, pipeline: Pipeline, stream: Stream, chosen: RowChoice
) -> RetractionPreview:
    """The preview of what `retract` would do now; nothing is written.

    Raises:
        LogError: nothing has been ingested yet.
        RetractionError: as `retract`.
    """
    check_retractable(pipeline, stream)
    newest = _head(spark, lake, stream, chosen)
    rows = _coming(spark, lake, stream, chosen).persist()
    try:
        days = _computed(lambda: rows.groupBy(DAY).count().orderBy(DAY).collect(), stream, chosen)
        columns = [f"`{name}`" for name in stream.columns]
        examples = rows.orderBy(DAY, ORIGIN).select(*columns).limit(_EXAMPLES).collect()
        number = sum(row["count"] for row in days)
        effects, unknown = list[Effect](), dict[str, str]()
        if number:
            coming = _as_coming(spark, lake, stream, chosen, newest, rows, number)
            for operator in pipeline.operators_of(stream):
                told, reason = _effects(spark, lake, operator, coming)
                effects += told
                unknown |= {operator.name: reason} if reason else {}
    finally:
        rows.unpersist()
    return RetractionPreview(
        stream.name,
        number,
        {row[DAY]: row["count"] for row in days},
        tuple(row.asDict() for row in examples),
        tuple(effects),
        unknown,
        tuple(_followers(pipeline, stream)) if number else (),
    )


def _as_coming(
    spark: SparkSession, lake: Lake, stream: Stream, chosen: RowChoice, newest: Batch, rows: DataFrame, number: int
) -> Coming:
    """The rows that a retraction would append, and of a stream with a key the changes that follow from them."""
    batch, watermark = newest.number + 1, stream.clock.watermark(next_state(newest))
    log = read_log(spark, lake, stream)
    revisions = at_batch(rows.withColumn(INGESTED_AT, F.lit(utc_now())), batch, watermark)
    if not stream.revised:
        return Coming(stream, log, revisions, log, revisions, batch, watermark, number)
    signed = at_batch(_as_changes(spark, lake, stream, chosen, rows), batch, watermark)
    changes = log.limit(0).unionByName(signed, allowMissingColumns=True)
    came = read_log(spark, lake, stream.revisions)
    return Coming(stream, log, changes, came, revisions, batch, watermark, number)


def _effects(spark: SparkSession, lake: Lake, operator: Operator, coming: Coming) -> tuple[Sequence[Effect], str]:
    """The effects on an operator, or why they cannot be told: it may be paused, for one that it cannot compute."""
    try:
        with function_errors():
            told = runtime_of(operator, lake).effects(spark, coming)
    except StreamingError as error:
        return (), str(error).strip().partition("\n")[0]
    except (PySparkException, Py4JJavaError) as error:
        return (), cause_in_words(error)
    return (told, "") if told is not None else ((), "its kind does not tell what rows to come would change")


def _followers(pipeline: Pipeline, stream: Stream) -> Iterator[Follower]:
    """Who follows what is current of the operators of a stream, at any depth."""
    pipelines = dict.fromkeys((pipeline, *declared_pipelines().values()))
    changed = dict.fromkeys(pipeline.operators_of(stream))
    told = set[Follower]()
    while True:
        found = [each for each in _following(pipelines, changed) if each[0] not in told]
        if not found:
            return
        for follower, operators in found:
            told.add(follower)
            yield follower
            changed.update(dict.fromkeys(operators))


def _following(
    pipelines: Iterable[Pipeline], changed: Iterable[Operator]
) -> Iterator[tuple[Follower, tuple[Operator, ...]]]:
    """Who follows one of these operators itself, each with the operators whose results change with it."""
    for of, each in product(changed, pipelines):
        for stream in each.streams:
            if stream.source.takes_back and of in [followed for followed, _ in stream.source.follows]:
                yield Follower(stream.kind_name, stream.name, each.name, of.name), each.operators_of(stream)
        for operator in each.operators:
            external = [table.operator for table in operator.external]
            if of in (*operator.reads_current, *external):
                yield Follower(operator.kind_name, operator.name, each.name, of.name), (operator,)
            elif of in (*operator.dimensions, *operator.looks_up):
                yield Follower(operator.kind_name, operator.name, each.name, of.name, looks_up=True), ()
        for delivery in each.deliveries:
            if delivery.of == of and delivery.what == CURRENT:
                yield Follower(delivery.kind_name, delivery.name, each.name, of.name), ()


def check_retractable(pipeline: Pipeline, stream: Stream) -> None:
    """Refuse to take rows back where somebody who follows them takes each for one that stands.

    Raises:
        RetractionError: with who that is, and the way out.
    """
    for who, why, way_out in _refusals(pipeline, stream):
        raise RetractionError(
            f"rows of stream {stream.name!r} cannot be taken back: {who} {why}",
            f"{way_out} Nothing was written.",
            stream=stream.name,
            pipeline=pipeline.name,
        )


def _refusals(pipeline: Pipeline, stream: Stream) -> Iterator[tuple[str, str, str]]:
    if stream.source.takes_back:
        of = ", ".join(of.name for of, _ in stream.source.follows)
        yield f"it follows what is current of {of}", "by itself", "Take the rows back in the stream that this follows."
    for operator in pipeline.operators_of(stream):
        refusal = operator.refuses(stream)
        if refusal:
            way_out = (
                f"Or take {operator.name} out of the pipeline; `tidemark drop {operator.name}` removes its tables."
            )
            yield f"{operator.kind_name} {operator.name!r} follows them, and", refusal, way_out
    for delivery in pipeline.deliveries:
        if delivery.sends_log and stream in delivery.reads:
            yield f"delivery {delivery.name!r}", "has sent them as they came", "Deliver what='current' of a view of it."
    for each in dict.fromkeys((pipeline, *declared_pipelines().values())):
        for other in each.streams:
            if any(isinstance(of, Stream) and of.name == stream.name for of, _ in other.source.follows):
                way_out = "Let it follow what is current of a view: Table(<view>, what='current')."
                yield f"stream {other.name!r} of pipeline {each.name!r}", "follows them as they came", way_out


def _head(spark: SparkSession, lake: Lake, stream: Stream, chosen: RowChoice) -> Batch:
    """The newest batch of the log of what came.

    Raises:
        LogError: nothing has been ingested yet.
        RetractionError: the condition is none over the columns, or there is no such retraction.
    """
    log, newest = read_log(spark, lake, stream.revisions), head(lake, stream.revisions)
    if newest is None:
        raise RetractionError(
            f"the log of stream {stream.name!r} has no batch yet, so nothing can be taken back",
            f"Run `tidemark run {stream.name}` first.",
            stream=stream.name,
        )
    if chosen.where is not None:
        readable = {
            **stream.types,
            INGESTED_AT: "timestamp",
            ORIGIN: stream.source.origin,
            BATCH: "bigint",
            DAY: "date",
        }
        check_condition(f"where of the retraction from stream {stream.name!r}", chosen.where, readable)
        try:
            _ = log.where(F.expr(f"({chosen.where}\n)")).schema
        except AnalysisException as error:
            raise _cannot_compute(stream, chosen, refusal(error)) from error
    elif all(batch.number != chosen.undoes or not batch.retraction for batch in read_batches(lake, stream.revisions)):
        raise RetractionError(
            f"stream {stream.name!r} has no retraction {chosen.undoes}",
            f"`tidemark retractions {stream.name}` lists them by their ids.",
            stream=stream.name,
            value=chosen.undoes,
        )
    return newest


def _computed(action: Callable[[], Any], stream: Stream, chosen: RowChoice) -> Any:
    try:
        return action()
    except PySparkException as error:
        raise _cannot_compute(stream, chosen, str(error).splitlines()[0]) from error


def _cannot_compute(stream: Stream, chosen: RowChoice, why: str) -> RetractionError:
    return RetractionError(
        f"where={chosen.where!r} cannot be computed of the rows of stream {stream.name!r}: {why}",
        "Correct it, for example with try_cast. Nothing was written.",
        stream=stream.name,
        value=chosen.where,
    )


def _coming(spark: SparkSession, lake: Lake, stream: Stream, chosen: RowChoice) -> DataFrame:
    """The rows that the log is to get: the stream's columns, `_origin` with what each takes back, and `_day`."""
    log = read_log(spark, lake, stream.revisions)
    if chosen.undoes is not None:
        rows = _of_retraction(spark, lake, stream, log, chosen.undoes)
    elif stream.revised:
        rows = _standing_revisions(spark, lake, stream, log).where(F.expr(f"({chosen.where}\n)"))
    else:
        newest = _newest_of_each(log)
        rows = newest.where(F.col(_NUMBER) % 2 == 0).where(F.expr(f"({chosen.where}\n)"))
    marked = F.col(ORIGIN).dropFields("change", "identity")
    marked = marked.withField(RETRACTION, (F.col(_NUMBER) + 1).cast("int")).withField(RETRACTS, F.col(_RETRACTED))
    types = log_schema(spark, stream.revisions)
    # The log lacks the columns that were declared since its last row came.
    columns = [
        F.col(f"`{name}`") if name in rows.columns else F.lit(None).cast(types[name].dataType).alias(name)
        for name in stream.columns
        if name != stream.as_before
    ]
    if stream.as_before:
        # A row that stands has all its values.
        columns.append(F.lit(None).cast(types[stream.as_before].dataType).alias(stream.as_before))
    return rows.select(*columns, marked.alias(ORIGIN), DAY)


def _numbered(rows: DataFrame) -> DataFrame:
    """Rows of a log with how often each was taken back or put back, and in which batch it came."""
    retracts = F.col(ORIGIN)[RETRACTS] if can_retract(rows) else F.lit(None).cast("bigint")
    return rows.withColumns({_NUMBER: retraction_of(rows), _RETRACTED: F.coalesce(retracts, F.col(BATCH))})


def _newest_of_each(log: DataFrame) -> DataFrame:
    """The newest of the valid rows of each identity."""
    rows = _numbered(valid(log))
    if not can_retract(log):
        return rows
    same = SortedBy.partitionBy(F.to_json(identity_of_row(log)))
    return rows.withColumn("_last", F.max(_NUMBER).over(same)).where(F.col("_last") == F.col(_NUMBER)).drop("_last")


def _standing_revisions(spark: SparkSession, lake: Lake, stream: Stream, log: DataFrame) -> DataFrame:
    """The rows of a stream with a key that stand, each with the number of the revision that added it."""
    stands = net(read_log(spark, lake, stream))
    if not can_retract(log):
        return stands.withColumns({_NUMBER: F.lit(0), _RETRACTED: F.col(BATCH)})
    numbers = _numbered(valid(log)).where(F.col(_NUMBER) > 0).select(_place_of_row(), _NUMBER, _RETRACTED)
    joined = stands.withColumn(_PLACE, _place_of_row()).join(numbers, _PLACE, "left")
    of_first = {_NUMBER: F.coalesce(_NUMBER, F.lit(0)), _RETRACTED: F.coalesce(_RETRACTED, BATCH)}
    return joined.withColumns(of_first).drop(_PLACE)


def _place_of_row() -> Column:
    """The batch and the origin of a row itself, as text."""
    own = F.col(ORIGIN).dropFields("change", "identity", RETRACTION, RETRACTS)
    return F.to_json(F.struct(BATCH, own.alias(ORIGIN))).alias(_PLACE)


def _of_retraction(spark: SparkSession, lake: Lake, stream: Stream, log: DataFrame, number: int) -> DataFrame:
    """The rows of a retraction that nobody has undone and, where they have a key, that nothing newer has replaced."""
    rows = _newest_of_each(log).where((F.col(BATCH) == number) & (F.col(_NUMBER) > 0))
    if not stream.revised:
        return rows
    keys = [f"`{name}`" for name in stream.key]
    stored = delta.read(spark, lake.standing(stream)).select(*keys, F.col(SEQUENCE).alias("_stored"), ADDED)
    of_rows = rows.withColumn(SEQUENCE, sequence_of(stream)).join(stored, list(stream.key), "inner")
    is_gone = F.col(ADDED).isNull() == (F.col(_NUMBER) % 2 == 1)
    return of_rows.where((F.col("_stored") == F.col(SEQUENCE)) & is_gone).drop("_stored", SEQUENCE, ADDED)


def _as_changes(spark: SparkSession, lake: Lake, stream: Stream, chosen: RowChoice, coming: DataFrame) -> DataFrame:
    """The changes that would follow, as far as a preview needs them: with a sign, and the identity of the row."""
    if chosen.where is not None:
        stands = net(read_log(spark, lake, stream)).where(F.expr(f"({chosen.where}\n)"))
        return stands.withColumn(ORIGIN, F.col(ORIGIN).withField("change", F.lit(-1)))
    origin = F.col(ORIGIN).withField("change", F.when(F.col(ORIGIN)[RETRACTION] % 2 == 1, -1).otherwise(1))
    put_back = origin.withField("identity", F.to_json(F.col(ORIGIN))).dropFields(RETRACTION, RETRACTS)
    return coming.withColumn(ORIGIN, put_back)
