"""The newest result of a view, by key: first results, overlaid with what corrects them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deltalake import DeltaTable

from streaming.base import QueryError
from streaming.declare import CORRECTIONS, UPDATES, Windowed
from streaming.lake import Lake
from streaming.operators import Progress, open_side
from streaming.queryable.answer import Answer, Latest, answered, latest_of, nothing_yet
from streaming.queryable.rows import checked, days_of, rows_with
from streaming.tables import delta

Row = dict[str, Any]

_LAYERS = {"first": None, "update": "_batch", "correction": "_through_batch"}
"""The kinds of results, each with the column that tells how much of the log it has seen."""


class LatestResults(Latest):
    """The current results of the newest window of each key.

    One key is looked for day by day, back from the newest; of all keys the results of the newest day are read. The
    answer's step is that of the first results.
    """

    def __init__(self, view: Windowed, lake: Lake) -> None:
        self._view = view
        self._lake = lake

    @property
    def keys(self) -> tuple[str, ...]:
        return self._view.by

    def read(self, key: Mapping[str, str], limit: int) -> Answer:
        checked(key, self.keys)
        if self._view.window.merging:
            raise QueryError(
                f"view {self._view.name!r} has sessions, whose results a late row may join; read them with `tidemark "
                f"show {self._view.folder} current --view {self._view.name}`."
            )
        tables = self._tables()
        first = tables["first"]
        at = Progress.of(self._view, first)
        for day in sorted({day for table in tables.values() for day in days_of(table)}, reverse=True):
            layers = {reason: rows_with(table, key, day=day) for reason, table in tables.items()}
            windows = newest_windows(current_rows(layers, self._view), self.keys)
            if windows:
                return answered(first, at.batch, at.watermark, windows, limit)
        return answered(first, at.batch, at.watermark, [], limit)

    def _tables(self) -> dict[str, DeltaTable]:
        first = delta.open_table(self._lake.first(self._view))
        if first is None:
            raise nothing_yet(self._view)
        sides = {"update": UPDATES, "correction": CORRECTIONS}
        opened = {reason: open_side(self._lake, self._view, suffix) for reason, suffix in sides.items()}
        return {"first": first, **{reason: table for reason, table in opened.items() if table is not None}}


def current_rows(layers: Mapping[str, list[Row]], view: Windowed) -> list[Row]:
    """The view's columns and `_reason` of each window, of whichever result has seen most of the log.

    `layers` are its rows as `first` results, as `update` and as `correction`, as in `current_results` of
    `streaming.views.corrections`.
    """
    newest: dict[tuple[Any, ...], tuple[tuple[int, int], list[Row]]] = {}
    for number, (reason, through) in enumerate(_LAYERS.items()):
        for row in layers.get(reason, ()):
            window = tuple(row[name] for name in (*view.by, "window_start", "window_end"))
            rank = (-1 if through is None else row[through], number)
            shown = [] if row.get("_retracted") else [{**{name: row[name] for name in view.columns}, "_reason": reason}]
            best, rows = newest.get(window, ((-2, 0), []))
            # A function may return several rows of one window.
            if rank >= best:
                newest[window] = (rank, [*rows, *shown] if rank == best else shown)
    return [row for _, rows in newest.values() for row in rows]


def newest_windows(rows: list[Row], keys: tuple[str, ...]) -> list[Row]:
    """The rows of each key in its window that ends last."""
    ends: dict[tuple[Any, ...], Any] = {}
    for row in rows:
        key = tuple(row[name] for name in keys)
        ends[key] = max(row["window_end"], ends.get(key, row["window_end"]))
    return [row for row in rows if row["window_end"] == ends[tuple(row[name] for name in keys)]]


@latest_of.register
def _(operator: Windowed, lake: Lake) -> Latest:
    return LatestResults(operator, lake)
