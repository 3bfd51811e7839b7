"""How a view is computed, in words: the way that was chosen, what it was chosen by, and how far the view is."""

from __future__ import annotations

from pyspark.sql import SparkSession

from streaming.base import told
from streaming.declare import FAILED, STATE, Windowed
from streaming.lake import Lake
from streaming.log import LogFiles, head, require_log
from streaming.operators import built_anew
from streaming.tables import delta
from streaming.views.kept import kept_of
from streaming.views.panes import can_fold
from streaming.views.position import Position
from streaming.views.results import results_columns
from streaming.views.steps import FOLDED_FROM, GATHERED_FROM, reads_of, waiting_at


def explain(spark: SparkSession, lake: Lake, view: Windowed) -> dict[str, str]:
    """By heading; the view may be there or not.

    Raises:
        LogError: nothing has been ingested yet.
    """
    require_log(lake, view.of)
    first, state = delta.open_table(lake.first(view)), delta.open_table(lake.table(view, STATE))
    return {
        "results": _results(view),
        "computed": _computed(spark, lake, view, Position.of(first), Position.of(state)),
        "state": "none" if state is None else f"{delta.size(lake.table(view, STATE)):,} bytes in {view.name}_{STATE}",
        "late rows": _late(view),
        "errors": f"go to the side output {FAILED!r}" if view.diverts else "pause the view",
        "steps": "after each batch of the log" if view.every is None else f"at most every {view.every}",
        "position": _position(lake, view, Position.of(first)),
    }


def _results(view: Windowed) -> str:
    keys = f" per {', '.join(view.by)}" if view.by else ""
    where = f", of the rows where {view.where}" if view.where else ""
    return f"{', '.join(view.values)}{keys} and window, {view.window.fingerprint}, over {view.of.name}{where}"


def _computed(spark: SparkSession, lake: Lake, view: Windowed, at: Position, folded: Position) -> str:
    log = LogFiles(lake, view.of)
    kept = kept_of(view, results_columns(spark, view, log))
    if view.window.merging:
        what = "the parts of their aggregates" if kept.wholes else f"their rows, because {_untold(view)}"
        return f"open sessions are kept in a table, with {what}; each step merges its rows into them"
    closing = "when the clock passes the end of a window, its rows are read from the log"
    if not can_fold(view, kept):
        return f"{closing}; they cannot be folded on the way, because {_untold(view)}"
    if view.window.overlap >= GATHERED_FROM:
        closing += " and put together by pane before they are counted in each window"
    waiting = reads_of(view, waiting_at(lake, view, log, folded.batch, at))
    reads = f"{waiting:,} reads of rows wait for it now, each row in {_windows(view)}"
    if folded.batch < 0:
        return f"{closing}; {reads}, and from {FOLDED_FROM:,} on they are folded into panes"
    return f"rows up to batch {folded.batch} are folded into panes of partial aggregates; {reads}"


def _windows(view: Windowed) -> str:
    return "one window" if view.window.overlap == 1 else f"at most {view.window.overlap} windows"


def _untold(view: Windowed) -> str:
    """Why partial aggregates do not tell a view's values."""
    if view.function is not None:
        return "its function needs all of them"
    if view.distinct:
        return f"rows that agree in {', '.join(view.distinct)} count once"
    whole = [name for name, each in view.aggregates.items() if not each.parts]
    if whole:
        return f"{', '.join(whole)} cannot be put together from parts"
    return "its windows, or decimals made of doubles, cannot be put together from parts"


def _late(view: Windowed) -> str:
    if view.late == "drop":
        return "are dropped from the results; they stay in the log"
    waits = "they wait for the correction of their day"
    if not view.updated:
        return waits
    if view.window.merging:
        again = "of the end of their session it is published again, as an update, once it is closed"
        return f"within {view.allowed_lateness} {again}; then {waits}"
    return f"within {view.allowed_lateness} they are counted at once, as updates; then {waits}"


def _position(lake: Lake, view: Windowed, at: Position) -> str:
    newest = head(lake, view.of)
    assert newest is not None
    return f"batch {at.batch:,} of {newest.number:,}, watermark {told(at.watermark)}{built_anew(at.generation)}"
