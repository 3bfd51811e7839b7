"""The laws once more in plain Python: what the log and every view over it must become."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import partial
from typing import Any, Literal

from tests.laws.clocks import Clock, whole_millisecond_before
from tests.laws.oracle import Event, Verdict, day_of, judge
from tests.laws.windows import Assign, Bounds, merged

Identity = tuple[Any, ...]
Values = tuple[Any, ...]
Results = Counter[tuple[Identity, Values]]
"""Results and how often each is there: once, if all is well."""

Compute = Callable[[Sequence[Event]], list[Values]]

_MILLISECOND = 1_000
"""In microseconds, as all instants here."""


@dataclass(frozen=True)
class Row:
    """A row of the log: the payload, where it came from, its batch, its stamp and its verdict."""

    raw: bytes
    file: str
    line: int
    batch: int
    stamp: int | None
    verdict: Verdict

    @property
    def event(self) -> Event:
        """What a valid row says."""
        assert self.verdict.event is not None
        return self.verdict.event

    @property
    def place(self) -> tuple[Any, ...]:
        """Its place among the rows of the log: event time first, then arrival."""
        return (self.event.at, *self.arrival)

    @property
    def arrival(self) -> tuple[Any, ...]:
        """Its place in the order in which rows came."""
        return (self.batch, self.file, self.line)


@dataclass(frozen=True)
class Pair:
    """A valid row in one of its windows; `own` is the window before it was merged with others."""

    row: Row
    own: Bounds
    is_late: bool


@dataclass(frozen=True)
class View:
    """A windowed view: which events count, how they are assigned and what is computed of a window's events.

    `distinct`: events of one window that agree in it count once. `lateness` (microseconds) belongs to `update`.
    """

    name: str
    assign: Assign
    compute: Compute
    width: int
    """How many values a result has."""

    by_key: bool = True
    merging: bool = False
    counts: Callable[[Event], bool] = lambda event: True
    distinct: Callable[[Event], Any] | None = None
    late: Literal["correct", "update", "drop"] = "correct"
    lateness: int = 0
    early: bool = False

    def key(self, row: Row) -> Identity:
        """The key as the result carries it."""
        return (row.event.key,) if self.by_key else ()

    def pairs(self, rows: Iterable[Row]) -> list[Pair]:
        """The pairs of valid rows that the view counts."""
        return [
            Pair(row, own, self._is_late(row, own))
            for row in rows
            if row.verdict.event is not None and self.counts(row.event)
            for own in self.assign(row.event)
        ]

    def groups(self, pairs: Sequence[Pair]) -> dict[Identity, list[Pair]]:
        """The pairs per key and window, in the order of their places."""
        own: defaultdict[Identity, list[Bounds]] = defaultdict(list)
        for pair in pairs:
            own[self.key(pair.row)].append(pair.own)
        windows = {key: merged(bounds) if self.merging else bounds for key, bounds in own.items()}
        groups: defaultdict[Identity, list[Pair]] = defaultdict(list)
        for pair in sorted(pairs, key=lambda pair: pair.row.place):
            key = self.key(pair.row)
            window = pair.own
            if self.merging:
                window = next((start, end) for start, end in windows[key] if start <= pair.own[0] <= end)
            groups[(*key, *window)].append(pair)
        return dict(groups)

    def values(self, pairs: Sequence[Pair]) -> list[Values]:
        """The results of one window's pairs."""
        counted = pairs
        if self.distinct is not None:
            earliest: dict[Any, Pair] = {}
            for pair in sorted(pairs, key=lambda pair: pair.row.arrival):
                earliest.setdefault(self.distinct(pair.row.event), pair)
            counted = sorted(earliest.values(), key=lambda pair: pair.row.place)
        return self.compute([pair.row.event for pair in counted])

    def copies(self, pairs: Sequence[Pair]) -> int:
        """How many of one window's pairs do not count, because an earlier one agrees with them."""
        assert self.distinct is not None
        return len(pairs) - len({self.distinct(pair.row.event) for pair in pairs})

    def results(self, pairs: Sequence[Pair], shown: Callable[[Identity], bool]) -> Results:
        """The results of the windows that are `shown`."""
        return Counter(
            (identity, values)
            for identity, members in self.groups(pairs).items()
            if shown(identity)
            for values in self.values(members)
        )

    def _is_late(self, row: Row, own: Bounds) -> bool:
        # The end of a session is not known when a row comes: its own time decides.
        if row.stamp is None:
            return False
        return own[0] < row.stamp if self.merging else own[1] <= row.stamp


@dataclass
class Timeline:
    """The log as it must become, and each view's corrections: feed it batches, end it, correct it."""

    now: int
    views: tuple[View, ...]
    clock: Clock
    rows: list[Row] = field(default_factory=list)
    heartbeats: list[tuple[int, int]] = field(default_factory=list)
    batches: int = 0
    watermarks: list[int | None] = field(default_factory=list)
    """The clock after each batch."""

    _corrected: dict[str, dict[date, tuple[int, Results]]] = field(default_factory=dict)

    def batch(self, files: Sequence[tuple[str, Sequence[bytes]]]) -> None:
        """One batch of files with their lines; it is stamped before its own lines are looked at."""
        stamp = self.clock.watermark
        new = [
            Row(raw, name, line, self.batches, stamp, judge(raw, self.now))
            for name, lines in files
            for line, raw in enumerate(lines)
        ]
        self.rows += new
        self.batches += 1
        self.clock.advance([row.event.at for row in new if row.verdict.event is not None])
        self.watermarks.append(self.clock.watermark)

    def end_of_input(self) -> None:
        """A heartbeat one millisecond after the latest end of any window that is still open."""
        if self.clock.watermark is None:
            return
        ends = [
            pair.own[1] for view in self.views for pair in view.pairs(self.rows) if not self._is_past(view, pair.own[1])
        ]
        if ends:
            closed = max(ends) + _MILLISECOND
            self.clock.close(closed)
            self.heartbeats.append((self.batches, -whole_millisecond_before(-closed)))
            self.watermarks.append(self.clock.watermark)
            self.batches += 1

    def is_closed(self, view: View, identity: Identity) -> bool:
        """Whether the watermark has reached the window's end, or passed it where windows merge."""
        return self._is_past(view, identity[-1])

    def _is_past(self, view: View, end: int) -> bool:
        return _is_closed_at(self.clock.watermark, view, end)

    def late(self, view: View) -> list[Pair]:
        """The late pairs."""
        return [pair for pair in view.pairs(self.rows) if pair.is_late]

    def unassigned(self, view: View) -> Counter[int]:
        """Per batch, how many rows that the view counts are in none of its windows."""
        return Counter(
            row.batch
            for row in self.rows
            if row.verdict.event is not None and view.counts(row.event) and not view.assign(row.event)
        )

    def first(self, view: View) -> Results:
        """First results: the closed windows over the pairs that came in time."""
        return view.results([pair for pair in view.pairs(self.rows) if not pair.is_late], partial(self.is_closed, view))

    def truth(self, view: View) -> Results:
        """The closed windows over all their pairs."""
        return view.results(view.pairs(self.rows), partial(self.is_closed, view))

    def current(self, view: View) -> Results:
        """What readers are to see: the truth, or the first results where late pairs are dropped by declaration."""
        return self.first(view) if view.late == "drop" else self.truth(view)

    def open(self, view: View) -> Results:
        """Early results: the windows that are not closed, over all their pairs."""
        return view.results(view.pairs(self.rows), lambda identity: not self.is_closed(view, identity))

    def updates(self, view: View) -> Results:
        """One result for each window and batch that brought a late pair within the lateness, over all pairs so far.

        The batch is the last value. Sessions: see `_session_updates`.
        """
        pairs = view.pairs(self.rows)
        if view.merging:
            return self._session_updates(view, pairs)
        brought = {
            (batch, identity)
            for identity, members in view.groups(pairs).items()
            for batch in {
                pair.row.batch
                for pair in members
                if pair.is_late and pair.row.stamp is not None and pair.row.stamp < identity[-1] + view.lateness
            }
        }
        return Counter(
            (identity, (*values, batch))
            for batch, identity in brought
            for values in view.values(view.groups([pair for pair in pairs if pair.row.batch <= batch])[identity])
        )

    def _session_updates(self, view: View, pairs: Sequence[Pair]) -> Results:
        """Batch by batch, the closed sessions that it brought late rows in time, and those with any that it closed."""
        updates: Results = Counter()
        for batch, watermark in enumerate(self.watermarks):
            before = self.watermarks[batch - 1] if batch else None
            for identity, members in view.groups([pair for pair in pairs if pair.row.batch <= batch]).items():
                late = [pair for pair in members if pair.is_late]
                brought = [pair for pair in late if pair.row.batch == batch]
                in_time = bool(brought) and not _is_too_late(view, identity, brought)
                ended = bool(late) and not _is_closed_at(before, view, identity[-1])
                if (in_time or ended) and _is_closed_at(watermark, view, identity[-1]):
                    for values in view.values(members):
                        updates[identity, (*values, batch)] += 1
        return updates

    def backlog(self, view: View) -> dict[date, int]:
        """Late pairs per day with late pairs that no correction has seen, or with a session that has ended since."""
        if view.late == "drop":
            return {}
        late: Counter[date] = Counter()
        newest: dict[date, int] = {}
        for identity, members in view.groups(view.pairs(self.rows)).items():
            waiting = [pair for pair in members if pair.is_late]
            if view.late == "update" and not view.merging:
                waiting = [pair for pair in waiting if _is_too_late(view, identity, [pair])]
            if waiting and (view.late != "update" or _is_too_late(view, identity, waiting)):
                for day in _days(day_of(identity[-2]), day_of(identity[-1] if view.merging else identity[-2])):
                    late[day] += len(waiting)
                    newest[day] = max(newest.get(day, -1), *(pair.row.batch for pair in waiting))
        corrected = self._corrected.get(view.name, {})
        return {
            day: pairs
            for day, pairs in late.items()
            if day not in corrected or newest[day] > corrected[day][0] or self._has_ended(view, corrected[day][1])
        }

    def correct(self, view: View, days: Iterable[date]) -> None:
        """Replace the corrections of each day: the truth of its windows with late pairs.

        A result is followed by its late pairs and whether it is retracted: the window gives none, or is still open.
        """
        groups = view.groups(view.pairs(self.rows))
        for day in days:
            corrections: Results = Counter()
            for identity, members in groups.items():
                late = sum(pair.is_late for pair in members)
                if late and day_of(identity[-2]) == day:
                    is_open = view.merging and not self.is_closed(view, identity)
                    shown = [] if is_open else [(*values, late, False) for values in view.values(members)]
                    for values in shown or [(*((None,) * view.width), late, True)]:
                        corrections[identity, values] += 1
            self._corrected.setdefault(view.name, {})[day] = (self.batches - 1, corrections)

    def corrections(self, view: View) -> Results:
        """The corrections as they were last made."""
        stored: Results = Counter()
        for _, corrections in self._corrected.get(view.name, {}).values():
            stored += corrections
        return stored

    def _has_ended(self, view: View, corrections: Results) -> bool:
        if not view.merging or view.late == "update":
            return False
        return any(values[-1] and self.is_closed(view, identity) for identity, values in corrections)


def _is_closed_at(watermark: int | None, view: View, end: int) -> bool:
    if watermark is None:
        return False
    return end < watermark if view.merging else end <= watermark


def _is_too_late(view: View, identity: Identity, late: Sequence[Pair]) -> bool:
    """Whether the stamp of the newest of these late pairs had passed the window's end by the lateness."""
    return max(pair.row.stamp for pair in late if pair.row.stamp is not None) >= identity[-1] + view.lateness


def _days(first: date, last: date) -> list[date]:
    return [first + timedelta(days=number) for number in range((last - first).days + 1)]
