"""The rows of a person in a pipeline's logs, and what was computed of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import BATCH, DAY, ORIGIN, WINDOW, ErasureError
from streaming.declare import STATE, Operator, Pipeline, Stream, Windowed
from streaming.lake import Lake
from streaming.log import REPAIRS, ever_rejected, place, read_batches, read_log, repaired
from streaming.operations.batch_counts import counted_by_batch
from streaming.operations.erasure.person import Person
from streaming.spark import exact_json
from streaming.tables import Split, delta
from streaming.views import pairs

WITHOUT_ROWS = ("batches", "dropped", "progress")
"""Tables beside the logs that hold no row of a stream."""

_PLACE = "_place"


@dataclass(frozen=True)
class InLog:
    """The rows of a person in the log of a stream: which they are, and how many of each batch.

    `by_batch` is as `Batch.erased` tells it.
    """

    stream: Stream
    split: Split
    by_batch: Mapping[int, Mapping[str, Any]]

    @property
    def valid(self) -> int:
        """Valid rows."""
        return sum(each["valid"] for each in self.by_batch.values())

    @property
    def rejected(self) -> int:
        """Rejected rows."""
        return sum(each["rejected"] for each in self.by_batch.values())


def check_known(pipeline: Pipeline, person: Person) -> None:
    """Refuse a column that no stream has.

    Raises:
        ErasureError: with those there are.
    """
    if not any(person.column in stream.columns for stream in pipeline.streams):
        there = "; ".join(f"{stream.name} has {', '.join(stream.columns)}" for stream in pipeline.streams)
        raise ErasureError(f"no stream of pipeline {pipeline.name!r} has a column {person.column!r}: {there}.")


def in_logs(spark: SparkSession, lake: Lake, pipeline: Pipeline, person: Person) -> list[InLog]:
    """The rows of a person in the logs that are there.

    Of rejected rows the payload counts too. One that was repaired goes with the row that repairs it.
    """
    there = [stream for stream in pipeline.streams if delta.exists(lake.log(stream))]
    return [_in_log(spark, lake, pipeline, stream, person) for stream in there]


def _in_log(spark: SparkSession, lake: Lake, pipeline: Pipeline, stream: Stream, person: Person) -> InLog:
    log = read_log(spark, lake, stream)
    split = _split(log, person, any(batch.cause == "repair" for batch in read_batches(lake, stream)))
    return InLog(stream, split, counted_by_batch(split.taken(log), lake, pipeline, stream))


def _split(log: DataFrame, person: Person, has_repairs: bool) -> Split:
    own, mention = person.matches(log, texts=()), person.matches(log)
    is_rejected = F.col(DAY).isNull() & F.col("_rejected").isNotNull()
    of_person = F.when(is_rejected, mention).otherwise(own)
    if not has_repairs:
        return Split(lambda rows: rows.where(of_person), lambda rows: rows.where(~of_person))
    repairs = repaired(log).select(
        exact_json(place(F.col(ORIGIN)), nulls=False).alias(_PLACE),
        F.col(ORIGIN)[REPAIRS].alias(BATCH),
        own.alias("theirs"),
    )
    ownership = {(row[_PLACE], row[BATCH]): row["theirs"] for row in repairs.collect()}
    theirs = [_key(place_, batch) for (place_, batch), is_theirs in ownership.items() if is_theirs]
    others = [_key(place_, batch) for (place_, batch), is_theirs in ownership.items() if not is_theirs]
    key = F.concat_ws("@", exact_json(place(F.col(ORIGIN)), nulls=False), F.col(BATCH).cast("string"))
    is_taken: Column = F.when(is_rejected, (mention | key.isin(theirs)) & ~key.isin(others)).otherwise(own)
    return Split(lambda rows: rows.where(is_taken), lambda rows: rows.where(~is_taken))


def _key(place_: str, batch: int) -> str:
    return f"{place_}@{batch}"


def of_rows(keys: DataFrame) -> Split:
    """Rows that come from those rows of a log of which `keys` has batch and origin."""
    return Split(
        lambda rows: rows.join(F.broadcast(keys), [BATCH, ORIGIN], "left_semi"),
        lambda rows: rows.join(F.broadcast(keys), [BATCH, ORIGIN], "left_anti").select(*rows.columns),
    )


def affected(pipeline: Pipeline, streams: Iterable[str]) -> list[Operator]:
    """The operators that read one of these streams and follow from their logs alone."""
    names = {*streams}
    return [
        operator
        for operator in pipeline.operators
        if not operator.never_rebuilt and names & {stream.name for stream in operator.reads}
    ]


def can_be_kept(lake: Lake, operator: Operator, person: Person) -> bool:
    """True if the operator's results may stay published: of several people, and nothing else is kept of their rows."""
    return (
        isinstance(operator, Windowed)
        and person.column not in operator.by
        and not operator.distinct
        and operator.function is None
        and not delta.exists(lake.table(operator, STATE))
    )


def days_touched(view: Windowed, occurrence: InLog, log: DataFrame) -> set[date]:
    """The days of the windows that rows of a person are in."""
    of_person = pairs(occurrence.split.taken(log), view)
    return {row["day"] for row in of_person.select(F.to_date(f"{WINDOW}.start").alias("day")).distinct().collect()}


def unread_rejected(spark: SparkSession, lake: Lake, pipeline: Pipeline, person: Person) -> dict[str, int]:
    """The number of rejected payloads of each stream without such a field, where the value alone tells the person."""
    counts: dict[str, int] = defaultdict(int)
    for stream in pipeline.streams:
        if delta.exists(lake.log(stream)):
            raw = F.col("_raw").cast("string")
            unread = ever_rejected(read_log(spark, lake, stream)).where(person.field_of(raw).isNull())
            counts[stream.name] = unread.count()
    return {name: count for name, count in counts.items() if count}
