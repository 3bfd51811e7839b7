"""The files of a growing table with the bounds of their rows, kept in memory and brought up to date by new commits."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from deltalake import DeltaTable

from streaming.base import DAY, FIRST_INSTANT, LAST_MILLISECOND, MILLISECOND
from streaming.tables.bounds import span_of_instants
from streaming.tables.delta import opened, partitions, refresh
from streaming.tables.history import actions_of
from streaming.tables.matching import DataFile
from streaming.tables.time_ranges import TimeRange, overlaps

_ANY_BATCH = (0, 2**63 - 1)
EVERY_DAY = date.max
"""Stands for the day of a file with rows of many days; no row of an event log is of this one."""


@dataclass(frozen=True, slots=True)
class IndexedFile:
    """A file of rows of one `day`, null for rows without one; no row lies outside its bounds, all of them inclusive.

    In a table that has no partitions a file has rows of any day, and its `day` is `EVERY_DAY`.

    `size` is in bytes; `rows` is null where nobody knows how many there are.
    """

    path: str
    size: int
    rows: int | None
    day: date | None
    earliest: datetime
    latest: datetime
    first_batch: int
    last_batch: int


class FileIndex:
    """The files of the table at `uri`, by the bounds of the column `time` and of `_batch`.

    Reading all of them from delta-rs costs as much as there are files; the index reads the commits that came since. A
    file whose bounds nobody knows may have any row.
    """

    def __init__(self, uri: str, time: str) -> None:
        self._uri = uri
        self._time = time
        self._table: DeltaTable | None = None
        self._files: dict[str, IndexedFile] = {}
        self._by_day: dict[date, dict[str, IndexedFile]] = defaultdict(dict)
        self._by_last_batch: list[tuple[int, str]] = []

    @property
    def table(self) -> DeltaTable | None:
        """The table as it is known; None before it was read."""
        return self._table

    def refresh(self) -> DeltaTable:
        """Bring the index up to the newest version of the table, which has to be there; returns it open."""
        if self._table is None:
            return self._load()
        # Where an entry cannot be read now, all is read by the next call.
        table, self._table = self._table, None
        before = table.version()
        refresh(table)
        commits = [actions_of(table, version) for version in range(before + 1, table.version() + 1)]
        if any(commit is None for commit in commits):
            # Cleaned away, so that nobody can tell what they changed.
            return self._load()
        for action in (action for commit in commits for action in commit or ()):
            if "remove" in action:
                self._remove(action["remove"]["path"])
            elif "add" in action:
                self._add(self._added(action["add"]))
        self._table = table
        return table

    def with_times(self, since: datetime, until: datetime, through: int) -> list[str]:
        """The files that may have a row with a time in [since, until], of the batches up to `through`."""
        days = sorted(day for day in self._by_day if since.date() <= day <= until.date() or day == EVERY_DAY)
        return [
            file.path
            for day in days
            for file in self._by_day[day].values()
            if file.latest >= since and file.earliest <= until and file.first_batch <= through
        ]

    def with_ranges(self, ranges: Sequence[TimeRange], after: int, through: int) -> list[str]:
        """The files that may have a row with a time in one of the merged `ranges`, of the batches in (after, through].

        What it costs grows with the files of the days that the ranges touch, not with those of the table.
        """
        touched = {day for start, end in ranges for day in self._days_within(start.date(), end.date())}
        touched |= {EVERY_DAY} & self._by_day.keys()
        return [
            file.path
            for day in sorted(touched)
            for file in self._by_day[day].values()
            if file.first_batch <= through and file.last_batch > after and overlaps(ranges, file.earliest, file.latest)
        ]

    def first_batch(self, paths: Iterable[str], through: int) -> int:
        """The least batch of which one of these files may have a row; `through` where there are no files."""
        return min((self._files[path].first_batch for path in paths), default=through)

    def with_batches(self, after: int, through: int, *, dated: bool = True) -> list[str]:
        """The files that may have a row of the batches in (after, through] with a day, or one without."""
        newer = self._by_last_batch[bisect_right(self._by_last_batch, (after, "\U0010ffff")) :]
        files = [file for file in (self._files[path] for _, path in newer) if file.first_batch <= through]
        return [file.path for file in files if file.day == EVERY_DAY or (file.day is not None) == dated]

    def has_only(self, path: str, after: int, through: int) -> bool:
        """True if all rows of the file are of the batches in (after, through]."""
        file = self._files[path]
        return after < file.first_batch and file.last_batch <= through

    def size(self, path: str) -> int:
        """Bytes of a file."""
        return self._files[path].size

    def data_file(self, path: str) -> DataFile:
        """A file with the span of its times, as rows of keys are looked up in it."""
        file = self._files[path]
        return DataFile(path, file.rows, {self._time: span_of_instants(file.earliest, file.latest)}, file.size)

    def rows(self, paths: Iterable[str]) -> int | None:
        """The number of rows that these files have in all; None where nobody knows."""
        counts = [self._files[path].rows for path in paths]
        return None if None in counts else sum(count or 0 for count in counts)

    def _days_within(self, first: date, last: date) -> Iterator[date]:
        if (last - first).days >= len(self._by_day):
            yield from (day for day in self._by_day if first <= day <= last)
            return
        for number in range((last - first).days + 1):
            day = first + timedelta(days=number)
            if day in self._by_day:
                yield day

    def _load(self) -> DeltaTable:
        table = opened(self._uri)
        self._table = table
        self._files, self._by_day, self._by_last_batch = {}, defaultdict(dict), []
        for file in self._listed(table):
            self._add(file)
        return table

    def _add(self, file: IndexedFile) -> None:
        self._files[file.path] = file
        if file.day is not None:
            self._by_day[file.day][file.path] = file
        insort(self._by_last_batch, (file.last_batch, file.path))

    def _remove(self, path: str) -> None:
        file = self._files.pop(path)
        if file.day is not None:
            del self._by_day[file.day][path]
        del self._by_last_batch[bisect_left(self._by_last_batch, (file.last_batch, path))]

    def _listed(self, table: DeltaTable) -> Iterator[IndexedFile]:
        actions = table.get_add_actions(flatten=True)
        columns = {name: actions[name].to_pylist() for name in actions.schema.names}
        unknown = [None] * len(columns["path"])

        def column(name: str) -> Iterable[Any]:
            return columns.get(name, unknown)

        bounds = [column(f"{bound}.{name}") for name in (self._time, "_batch") for bound in ("min", "max")]
        partitioned = partitions(table)
        days = column(f"partition.{DAY}") if partitioned else [EVERY_DAY] * len(columns["path"])
        of_file = (columns["path"], columns["size_bytes"], column("num_records"), days)
        for path, size, rows, day, *values in zip(*of_file, *bounds, strict=True):
            yield _file(path, size, rows, day, *values)

    def _added(self, action: Mapping[str, Any]) -> IndexedFile:
        statistics = json.loads(action.get("stats") or "{}")
        least, greatest = statistics.get("minValues", {}), statistics.get("maxValues", {})
        values = action["partitionValues"]
        text = values.get(DAY)
        day = date.fromisoformat(text) if text else None
        return _file(
            action["path"],
            action["size"],
            statistics.get("numRecords"),
            day if DAY in values else EVERY_DAY,
            _parsed(least.get(self._time)),
            _parsed(greatest.get(self._time)),
            least.get("_batch"),
            greatest.get("_batch"),
        )


def _file(
    path: str,
    size: int,
    rows: int | None,
    day: date | None,
    earliest: datetime | None,
    latest: datetime | None,
    first_batch: int | None,
    last_batch: int | None,
) -> IndexedFile:
    return IndexedFile(
        path,
        size,
        rows,
        day,
        FIRST_INSTANT if earliest is None else earliest.astimezone(UTC),
        LAST_MILLISECOND if latest is None else _rounded_up(latest.astimezone(UTC)),
        _ANY_BATCH[0] if first_batch is None else first_batch,
        _ANY_BATCH[1] if last_batch is None else last_batch,
    )


def _rounded_up(instant: datetime) -> datetime:
    """A later instant, as whoever wrote the bound may have cut it off at the millisecond."""
    return min(instant, LAST_MILLISECOND - MILLISECOND) + MILLISECOND


def _parsed(text: str | None) -> datetime | None:
    """An instant as Delta's statistics have it."""
    return None if text is None else datetime.fromisoformat(text)
