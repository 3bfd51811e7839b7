"""Repair: rejected rows that today's declaration accepts come back, as a batch of their own with today's stamp."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming import log
from streaming.base import BATCH, INGESTED_AT, ORIGIN, constant
from streaming.declare import OverWindows, Pipeline, Stream
from streaming.formats import TYPED
from streaming.lake import Lake
from streaming.log import (
    RETURNING,
    Batch,
    RowValidator,
    append_validated,
    kept_back,
    masked,
    next_kept_from,
    next_state,
    returning,
    stamp,
    with_values_of_then,
)
from streaming.operators import ChangedWindow, counts_of, runtime_of
from streaming.revisions import net, newest_revisions
from streaming.service import take_lease
from streaming.tables import delta
from streaming.views import changed_windows


@dataclass(frozen=True)
class Repaired:
    """The outcome of a repair: rejected rows it `examined`, those it `repaired`, and its batch in each log, by stream.

    A log of which no row passed has no batch. `kept_back`: rows that stay rejected since they were masked: their
    payload is not there, they were rejected for what is masked, or other masks are declared today.
    """

    examined: int
    repaired: int
    batches: Mapping[str, Batch]
    kept_back: int = 0

    @property
    def still_rejected(self) -> int:
        """Rows that stay rejected."""
        return self.examined - self.repaired


@dataclass(frozen=True)
class Preview:
    """The preview of a repair: rejected rows it would examine and repair, and by operator the windows to be changed.

    `kept_back` as of `Repaired`.
    """

    examined: int
    repaired: int
    changes: Mapping[str, tuple[ChangedWindow, ...]]
    kept_back: int = 0


def repair(spark: SparkSession, lake: Lake, pipeline: Pipeline, now: Callable[[], datetime]) -> Repaired:
    """Judge the rejected rows anew and append those that are valid now, in one commit.

    Each is judged as of the moment it came, so that waiting for its repair makes no row too old (`max_behind`); but for
    days that the log does not keep any more. It
    keeps its origin, marked with the batch of the rejected row that it repairs, so that it comes back once however
    often this runs or is killed. It is stamped like any row that comes now, hence mostly late and due for correction.

    Raises:
        LeaseError: the pipeline is running.
        LogError: nothing has been ingested yet, or the log has a column with another type than the declaration's.
        SettingsError: the salt of a mask is not set.
        SaltError: it is another one than that of the log.
    """
    processed_at = now()
    with take_lease(lake, pipeline):
        begun = _begun(lake, pipeline)
        repaired = [_repair(spark, lake, pipeline, stream.revisions, processed_at) for stream in begun]
    return Repaired(
        sum(each.examined for each in repaired),
        sum(each.repaired for each in repaired),
        {name: batch for each in repaired for name, batch in each.batches.items()},
        sum(each.kept_back for each in repaired),
    )


def _repair(spark: SparkSession, lake: Lake, pipeline: Pipeline, stream: Stream, processed_at: datetime) -> Repaired:
    validated = judged_anew(spark, lake, stream, processed_at).persist()
    try:
        examined, passing = _counted(validated)
        stay = count_kept_back(spark, lake, stream)
        examined += stay
        if not passing:
            return Repaired(examined, 0, {}, stay)
        runtimes = [runtime_of(operator, lake) for operator in pipeline.operators_of(stream)]
        batch = append_validated(
            log.valid(validated),
            lake,
            stream,
            log.head(lake, stream),
            processed_at,
            counts_of(runtimes, stream),
            pinned=pins_now(lake, pipeline, stream),
        )
    finally:
        validated.unpersist()
    return Repaired(examined, passing, {stream.name: batch}, stay)


def _begun(lake: Lake, pipeline: Pipeline) -> list[Stream]:
    """The streams but for control streams that have set no rule yet."""
    controls = pipeline.control_streams
    return [stream for stream in pipeline.streams if stream not in controls or _newest(lake, stream) >= 0]


def pins_now(lake: Lake, pipeline: Pipeline, stream: Stream) -> dict[str, int]:
    """The newest batch of each control stream that a batch of the stream records, by name; -1 where it has none."""
    return {control.name: _newest(lake, control) for control in pipeline.pinned_by(stream)}


def _newest(lake: Lake, stream: Stream) -> int:
    newest = log.head(lake, stream)
    return -1 if newest is None else newest.number


def preview(spark: SparkSession, lake: Lake, pipeline: Pipeline, now: Callable[[], datetime]) -> Preview:
    """The preview of what `repair` would do now; nothing is written.

    Raises:
        LogError: nothing has been ingested yet.
    """
    previews = [_preview(spark, lake, pipeline, stream, now()) for stream in _begun(lake, pipeline)]
    changes = {name: windows for each in previews for name, windows in each.changes.items()}
    examined, repaired, stay = (
        sum(getattr(each, name) for each in previews) for name in ("examined", "repaired", "kept_back")
    )
    return Preview(examined, repaired, changes, stay)


def _preview(spark: SparkSession, lake: Lake, pipeline: Pipeline, stream: Stream, processed_at: datetime) -> Preview:
    came = stream.revisions
    validated = judged_anew(spark, lake, came, processed_at).persist()
    try:
        examined, passing = _counted(validated)
        stay = count_kept_back(spark, lake, came)
        examined += stay
        head = log.head(lake, came)
        number = 0 if head is None else head.number + 1
        watermark = came.clock.watermark(next_state(head))
        coming = stamp(log.valid(validated), came.columns, number, watermark)
        there = log.read_log(spark, lake, stream)
        if stream.revised:
            coming = stamp(_as_changes(spark, lake, stream, coming, number), stream.columns, number, watermark)
        # The table lacks what was declared since its last row came.
        before = there.unionByName(coming.limit(0), allowMissingColumns=True)
        after = there.unionByName(coming, allowMissingColumns=True)
        changes = {
            each.name: _changed(spark, lake, each, stream, before, after, number) if passing else ()
            for each in pipeline.over_windows_of(stream)
        }
    finally:
        validated.unpersist()
    return Preview(examined, passing, changes, stay)


def _as_changes(spark: SparkSession, lake: Lake, stream: Stream, coming: DataFrame, number: int) -> DataFrame:
    """The changes of a stream with a key that would follow from revisions that are `coming` as batch `number`."""
    keys = coming.select(*(f"`{name}`" for name in stream.key)).distinct()
    came = log.read_log(spark, lake, stream.revisions).unionByName(coming, allowMissingColumns=True)
    newest = newest_revisions(log.valid(came).join(keys, list(stream.key), "left_semi"), stream)
    stands = net(log.read_log(spark, lake, stream)).join(keys, list(stream.key), "left_semi")
    back = stands.join(newest.where(F.col(BATCH) < number), list(stream.key), "left_anti")
    added = newest.where(F.col(BATCH) == number)
    origin, identity = F.col(ORIGIN), F.to_json(F.struct(BATCH, ORIGIN))
    added = added.withColumn(ORIGIN, origin.withField("change", F.lit(1)).withField("identity", identity))
    back = back.withColumn(ORIGIN, origin.withField("change", F.lit(-1)))
    return back.unionByName(added, allowMissingColumns=True)


def judged_anew(spark: SparkSession, lake: Lake, stream: Stream, now: datetime) -> DataFrame:
    """The rejected rows that are not repaired, judged as of when they came; each origin tells in which batch that was.

    `now` is their `_ingested_at` all the same, so that it never falls along the log.
    """
    rejected = log.rejected(log.read_log(spark, lake, stream))
    origin = F.col("_origin").withField(log.REPAIRS, F.col("_batch")).alias("_origin")
    typed = stream.source.is_typed(F.col("_origin")).alias(TYPED)
    kept_from = next_kept_from(log.head(lake, stream), stream)
    if not stream.masked:
        parsed = stream.format.parse(returning(rejected, stream).select("_raw", origin, INGESTED_AT, typed))
        return RowValidator(stream)(parsed, kept_from=kept_from).withColumn(INGESTED_AT, constant(now))
    parsed = stream.format.parse(returning(rejected, stream).select("_raw", origin, INGESTED_AT, typed, *RETURNING))
    judged = RowValidator(stream, again=True)(with_values_of_then(parsed, stream), kept_from=kept_from)
    return masked(judged, stream).withColumn(INGESTED_AT, constant(now))


def count_kept_back(spark: SparkSession, lake: Lake, stream: Stream) -> int:
    """The number of rejected rows that `judged_anew` leaves out, as masked values do not tell what is asked of them."""
    return kept_back(log.rejected(log.read_log(spark, lake, stream)), stream).count()


def _counted(validated: DataFrame) -> tuple[int, int]:
    counts = validated.agg(F.count(F.lit(1)), F.count("_day")).first()
    assert counts is not None
    return counts[0], counts[1]


def _changed(
    spark: SparkSession,
    lake: Lake,
    operator: OverWindows,
    stream: Stream,
    before: DataFrame,
    after: DataFrame,
    number: int,
) -> tuple[ChangedWindow, ...]:
    """The windows whose results differ `before` and `after` rows come as batch `number`.

    An operator whose other streams have no log yet has none.
    """
    others = [each for each in operator.reads if each != stream]
    if not all(delta.exists(lake.log(each)) for each in others):
        return ()
    logs = {each.name: log.read_log(spark, lake, each) for each in others}
    without, with_them = ({**logs, stream.name: rows} for rows in (before, after))
    return changed_windows(operator, stream, without, with_them, number)
