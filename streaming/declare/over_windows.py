"""Operators over windows: what a view of one stream, and a window join or co-group of two, have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from streaming.base import DAY, EVENT_TIME, earlier
from streaming.declare.columns import ColumnSpec, read_from_log
from streaming.declare.delivered import CHANGES
from streaming.declare.operator import (
    CORRECTIONS,
    CURRENT,
    UPDATES,
    Operator,
    RowLaw,
    TableSpec,
    published_columns,
    published_of,
)
from streaming.declare.stream import Stream
from streaming.windows import Window

WRITTEN = ColumnSpec("_written_at", "When the row was written.", "timestamp")
VOID = ColumnSpec(
    "_retracted", "Whether what was published of the window is void, and nothing stands for it.", "boolean"
)


class OverWindows(Operator):
    """An operator whose results belong to a key and a window, in which the rows of its streams come together."""

    window: Window
    late: str

    is_timed = True
    result_name = "window"
    corrected_name = "windows"
    late_meaning = "Pairs of row and window that came after their window was closed."

    @property
    @abstractmethod
    def by(self) -> tuple[str, ...]:
        """The key columns of a result."""

    @property
    @abstractmethod
    def values(self) -> tuple[str, ...]:
        """The columns that are computed."""

    @abstractmethod
    def value_columns(self) -> Iterable[ColumnSpec]:
        """The computed columns: what they mean, and which columns of the logs they are computed from."""

    @abstractmethod
    def key_columns(self) -> Iterable[ColumnSpec]:
        """The key columns, likewise."""

    @property
    @abstractmethod
    def own_tables(self) -> tuple[TableSpec, ...]:
        """The tables that the stream process writes beside first results."""

    @property
    @abstractmethod
    def gives_many(self) -> bool:
        """True if one key and window may have several results."""

    @property
    @abstractmethod
    def counted_through(self) -> Mapping[str, Stream]:
        """The columns of a correction with the batch up to which rows are counted, each with the log that it is of."""

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        """First results, what else the stream process writes, and corrections where they are declared."""
        of = f"of {self.kind_name} {self.name}"
        corrections = TableSpec(
            CORRECTIONS, f"Corrections {of}", written_by="backfill", keeps_history=True, bounded=("window_start",)
        )
        return (
            TableSpec(
                "",
                f"First results {of}{f': {self.description}' if self.description else ''}",
                bounded=("window_start", "window_end"),
            ),
            *self.own_tables,
            *([corrections] if self.corrected else []),
        )

    @property
    def published(self) -> tuple[TableSpec, ...]:
        """Current results, where anything corrects first results."""
        return published_of(self) if self.overlaid else ()

    @property
    def corrected(self) -> bool:
        """True if late pairs wait for a scheduled correction, at least those that come very late."""
        return self.late != "drop"

    def columns_of(self, suffix: str = "") -> tuple[ColumnSpec, ...]:
        """Keys, window, values, then what the table with this suffix adds."""
        if suffix in (CURRENT, CHANGES) and self.overlaid:
            return published_columns(self, suffix)
        added = self._added.get(suffix)
        if added is None:
            return ()
        start, end, day = self._bounds
        return (*self.key_columns(), start, end, *self.value_columns(), *added, day)

    @property
    def _added(self) -> Mapping[str, tuple[ColumnSpec, ...]]:
        """The columns that tables of results add to it, by suffix."""
        logs = ("the log",) if len(self.counted_through) == 1 else ("the left log", "the right log")
        through = (
            ColumnSpec(name, f"The batch of {log} up to which rows are counted.", "bigint")
            for name, log in zip(self.counted_through, logs, strict=True)
        )
        return {
            "": (WRITTEN,),
            CORRECTIONS: (
                ColumnSpec("_late_rows", "How many rows of the window came late.", "bigint"),
                VOID,
                *through,
                ColumnSpec("_corrected_at", "When the correction was computed.", "timestamp"),
            ),
        }

    @property
    def _bounds(self) -> tuple[ColumnSpec, ColumnSpec, ColumnSpec]:
        """Start and end of the window, and its day."""
        read = (read_from_log(stream, EVENT_TIME, *self.window.expressions) for stream in self.reads)
        of = tuple(dict.fromkeys(one for columns in read for one in columns))
        return (
            ColumnSpec("window_start", "Start of the window, inclusive.", "timestamp", of),
            ColumnSpec("window_end", "End of the window, exclusive.", "timestamp", of),
            ColumnSpec(DAY, "Date of the window's start, UTC.", "date", of),
        )

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that tell to which key and window a result belongs: keys, then window bounds."""
        return (*self.by, "window_start", "window_end")

    @property
    def explained_by(self) -> tuple[str, ...]:
        """Keys and window, also where a window has several results."""
        return self.identity

    @property
    def reach(self) -> timedelta | None:
        """The reach of its windows."""
        return self.window.reach

    def first_begin(self, watermark: datetime | None) -> datetime | None:
        """The longest window before the end of those that are closed."""
        window = self.window
        if watermark is None or window.merging or window.reach is None:
            return None
        return earlier(window.closed_by(watermark), window.reach + window.rows_before)

    def first_open(self, watermark: datetime) -> datetime | None:
        """The begin of the first window that is open, where windows begin at regular intervals."""
        return self.window.first_begin(self.window.closed_by(watermark))

    @property
    def times(self) -> tuple[str, ...]:
        """Begin and end of the window."""
        return ("window_start", "window_end")

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of a result that are a function of the rows: identity, then values."""
        return (*self.identity, *self.values)

    def laws_of(self, suffix: str = "") -> tuple[RowLaw, ...]:
        """Results are on the day of their window, one per key and window unless a function or a pair makes many."""
        if suffix not in ("", UPDATES, CORRECTIONS):
            return ()
        per = ("_batch",) if suffix == UPDATES else ()
        day = "window_start < window_end and _day = to_date(window_start)"
        late = RowLaw("has_late_rows", (), "_late_rows >= 1", "a corrected window has a late row")
        return (
            *(() if self.gives_many else (RowLaw("unique_key", (*self.identity, *per)),)),
            RowLaw("day_of_window", (), day, "a result is on the day its window starts"),
            *((late,) if suffix == CORRECTIONS else ()),
        )

    @property
    def late_policy(self) -> str:
        """As declared."""
        return self.late

    @property
    def tells_late(self) -> bool:
        """The pairs of row and window that came after their window was closed."""
        return True

    @property
    def refuses_changes(self) -> str:
        """Late rows that are left out, among them what takes a row back."""
        dropping = "late='drop' would leave out what takes a row back, and count it twice; declare late='correct'"
        return dropping if self.late == "drop" else ""

    @property
    def sessions_may_part(self) -> bool:
        """True for sessions of a stream of which rows are taken back, so that one may shrink or fall apart."""
        return self.window.merging and any(stream.takes_back for stream in self.reads)

    @property
    def updated(self) -> bool:
        """True if the stream process itself corrects by late pairs that come within the allowed lateness."""
        return False

    @property
    def lateness(self) -> timedelta:
        """The allowed lateness; zero where the stream process corrects nothing."""
        return timedelta()
