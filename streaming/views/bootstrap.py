"""Bootstrap of a view: what is closed already comes by batch, so that its stream needs no old version of the log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import MICROSECOND, WINDOW, from_micros, literal, optional_instant, to_micros
from streaming.declare import Windowed
from streaming.lake import Lake
from streaming.log import Batch, read_log
from streaming.operators import create_table
from streaming.tables import delta, storage
from streaming.views.kinds import kind_of
from streaming.views.results import finish, group, pairs

_BATCH, _WATERMARK, _FLOOR = "bootstrap", "bootstrap.watermark", "bootstrap.floor"


@dataclass(frozen=True)
class Bootstrap:
    """How far a view's first results were written by batch, and what its stream takes up from there.

    `batch`: the newest batch of the log that was looked at. `watermark`: its stamp; every window that ends by then is
    written. `floor`: of the batches up to `batch` the stream takes only the pairs whose window is past it. Where
    windows merge, that is the instant before the earliest session still open, otherwise the watermark. Both are null
    where no window was closed.
    """

    batch: int
    watermark: datetime | None
    floor: datetime | None

    @classmethod
    def of(cls, lake: Lake, view: Windowed) -> Bootstrap | None:
        """The bootstrap that the view's table began with; None where the stream wrote all of it."""
        table = delta.open_table(lake.first(view))
        batch = None if table is None else table.transaction_version(_BATCH)
        if table is None or batch is None:
            return None
        return cls(batch, *(optional_instant(table.transaction_version(name)) for name in (_WATERMARK, _FLOOR)))

    def numbers(self) -> dict[str, int]:
        """Watermark and floor as the table keeps them, in microseconds since the epoch."""
        instants = {_WATERMARK: self.watermark, _FLOOR: self.floor}
        return {name: to_micros(instant) for name, instant in instants.items() if instant is not None}


def has_started(lake: Lake, view: Windowed) -> bool:
    """Whether the view's stream has fixed a first batch: from there on its checkpoint knows where it is."""
    return any(storage.listed(f"{lake.operator_checkpoint(view)}/offsets"))


def bootstrap_view(spark: SparkSession, lake: Lake, view: Windowed, head: Batch, now: Callable[[], datetime]) -> int:
    """Append the first results of all windows that are closed after batch `head`, the newest; returns their rows.

    One commit, idempotent. To be called before the view's stream begins and while nothing is ingested. Should the log
    have moved on since an earlier call, the windows closed in between are added.
    """
    before = Bootstrap.of(lake, view)
    if before is not None and before.batch >= head.number:
        return 0
    log = read_log(spark, lake, view.of)
    on_time = pairs(log.where(F.col("_batch") <= head.number), view).where("not _late")
    watermark = head.state.watermark
    after = None if before is None else before.watermark
    written = closed_results(on_time, view, after, watermark).withColumn("_written_at", literal(now()))
    uri = create_table(lake, view, "", written.schema)
    through = Bootstrap(head.number, watermark, _floor(on_time, view, watermark))
    return delta.append(
        written,
        uri,
        txn=delta.Txn(_BATCH, head.number),
        metadata=lambda: {"bootstrap": head.number, **through.numbers()},
        statistics=("window_start", "window_end"),
        numbers=through.numbers,
    )


def closed_results(of: DataFrame, view: Windowed, after: datetime | None, through: datetime | None) -> DataFrame:
    """Results of the windows of the pairs `of` that closed after the watermark `after` and by `through`."""
    # The bounds of a session are aggregates here, so that the filter stays above the merge.
    end = F.col(f"{WINDOW}.end")
    closed = F.lit(False) if through is None else end <= literal(view.window.closed_by(through))
    newly = closed if after is None else closed & (end > literal(view.window.closed_by(after)))
    return finish(group(of, view).where(newly), view)


def _floor(of: DataFrame, view: Windowed, watermark: datetime | None) -> datetime | None:
    if watermark is None or not kind_of(view).merges:
        return watermark
    # A row of an open session may itself be over. Sessions of a key never touch, so all rows of those that are closed
    # lie before those that are open.
    open_sessions = group(of, view).where(F.col(f"{WINDOW}.end") > literal(view.window.closed_by(watermark)))
    earliest = open_sessions.agg(F.unix_micros(F.min(f"{WINDOW}.start"))).first()
    assert earliest is not None
    return watermark if earliest[0] is None else min(watermark, from_micros(earliest[0]) - MICROSECOND)
