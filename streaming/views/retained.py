"""Which rows of its log a view may still need, and up to which batch it has read them all."""

from __future__ import annotations

from datetime import UTC, date, datetime, time

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import WINDOW, literal
from streaming.declare import STATE, Windowed
from streaming.lake import Lake
from streaming.log import read_log
from streaming.tables import delta
from streaming.views.kinds import kind_of
from streaming.views.position import Position
from streaming.views.results import possible_pairs
from streaming.views.updates import updated_through
from streaming.windows import whole_days


def read_through(lake: Lake, view: Windowed) -> int:
    """The newest batch up to which all tables of the view follow the log; -1 for none."""
    at = [Position.of(delta.open_table(lake.first(view))).batch]
    if view.window.merging:
        at.append(Position.of(delta.open_table(lake.table(view, STATE))).batch)
    if view.updated:
        at.append(updated_through(lake, view))
    return min(at)


def needs_since(spark: SparkSession | None, lake: Lake, view: Windowed, since: date) -> date | None:
    """The first day of rows that the view may still need, once no row of a day before `since` comes any more.

    None for all rows. Of sessions only the rows tell, so that without a session of Spark it may be earlier.
    """
    if not view.window.merging:
        return view.window.needed_since(since)
    if view.window.reach is None:
        return None
    first = since if spark is None else _first_day(read_log(spark, lake, view.of), view, since)
    return first - whole_days(view.window.rows_before)


def _first_day(log: DataFrame, view: Windowed, since: date) -> date:
    """The first day of the sessions that rows of the day `since` or later are part of, or would touch."""
    sessions = kind_of(view).group(possible_pairs(log, view), view.by, [F.count(F.lit(1)).alias("rows")])
    touched = sessions.where(F.col(f"{WINDOW}.end") >= literal(datetime.combine(since, time.min, UTC)))
    first = touched.agg(F.to_date(F.min(f"{WINDOW}.start")).alias("day")).first()
    return since if first is None or first["day"] is None else min(first["day"], since)
