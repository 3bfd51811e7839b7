"""The declaration of a history: for each key of a stream the intervals in which its row had which values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from streaming.base import (
    ADDED,
    BATCH,
    DAY,
    INGESTED_AT,
    REASON,
    SIGN,
    DeclarationError,
    check_name,
    interval,
    settle,
)
from streaming.declare.columns import ColumnSpec, meaning_of, read_from_log
from streaming.declare.delivered import CHANGES
from streaming.declare.operator import (
    CURRENT,
    STATE,
    STATE_BOUNDED,
    AlwaysCurrent,
    TableSpec,
    published_columns,
)
from streaming.declare.stream import Stream

VALID_FROM, VALID_TO = "valid_from", "valid_to"
"""When a row began to be as it is, and when it was another one or gone; null where it still is."""


@dataclass(frozen=True)
class History(AlwaysCurrent):
    """The rows of the stream `of`, which has a key, as they were at each time: a slowly changing dimension.

    Each revision begins an interval, from `valid_from` until `valid_to`, exclusive, when the next one begins; that of
    the newest has no end. They follow one another by their time, and of one time by the stream's sequence: of revisions
    with the same time the greatest sequence counts. A revision that comes late splits the interval that it falls into.
    A delete ends the interval before it.

    `since` is the column with the time of a revision; where that is null, and where nothing is said, it is the event
    time, and of a delete without one the time at which it came. Of whole extracts (`Stream(snapshots=...)`) a row that
    is new or has changed is a revision, and one that is gone a delete: without `since` at the time at which the extract
    was taken, as `Snapshots(taken_at=...)` says, or else came; a delete always at that time, and so is a row that is
    there again with an older one.

    Of a stream that forgets (`Stream(forget=...)`) a revision that is forgotten is in no interval. The history forgets,
    too. A revision is old once the watermark is more than `forget` past its time, and past the watermark after the
    batch with which it came. Of a key's oldest revisions, in order of their times, as many as are old, the history
    remembers the last: what comes later and is before that one changes no interval, and is told as forgotten. What
    intervals there are stays.

    `track` are the columns of which another value begins an interval; revisions that differ in others alone are one
    interval, with the values of the last of them. All columns are tracked where nothing is said, so that each revision
    begins one.

    `kind=2` (type 2 of Kimball's dimensions) keeps all intervals, `kind=1` of each key the newest without an end, so
    that a revision which comes late, but is older, changes nothing. Both are always current: nothing is late for them.

    `every` (an interval of processing time): how often a running pipeline steps it at most; left out, after each batch.

    Raises:
        DeclarationError: a stream without key, an unknown column, or one with the name of a bound.
    """

    name: str
    of: Stream
    track: tuple[str, ...] | None = None
    since: str | None = None
    kind: Literal[1, 2] = 2
    description: str = ""
    every: str | None = None

    kind_name = "history"
    result_name = "interval"
    current_meaning = "intervals that were added and not taken back"

    def __post_init__(self) -> None:
        check_name(self.kind_name, self.name)
        settle(self, f"history {self.name!r}")
        if not self.of.revised:
            raise DeclarationError(
                f"history {self.name!r} is of stream {self.of.name!r}, which has no key, so that nothing is revised",
                "declare Stream(key=..., sequence=...), or snapshots=Snapshots() of whole extracts.",
                operator=self.name,
                stream=self.of.name,
            )
        if self.since is not None and not (self.of.types.get(self.since) or "").startswith("timestamp"):
            times = [name for name, type_ in self.of.types.items() if (type_ or "").startswith("timestamp")]
            raise DeclarationError(
                f"since={self.since!r} of history {self.name!r} is no timestamp column of stream {self.of.name!r}; "
                f"these are: {', '.join(times)}",
                "name one of them, or leave it out for the event time.",
                operator=self.name,
                value=self.since,
                choices=tuple(times),
            )
        for name in self.track or ():
            if name not in self.values or name in self.of.key:
                choices = tuple(each for each in self.values if each not in self.of.key)
                raise DeclarationError(
                    f"track={self.track!r} of history {self.name!r} has {name!r}, which is "
                    f"{'part of the key' if name in self.of.key else 'no column'}; track some of: {', '.join(choices)}",
                    "leave it out to let each revision begin an interval.",
                    operator=self.name,
                    value=name,
                    choices=choices,
                )
        if self.track == ():
            raise DeclarationError(f"track=() of history {self.name!r} names no column", "leave it out to track all.")
        taken = [name for name in self.of.columns if name.lower() in (VALID_FROM, VALID_TO)]
        if taken:
            raise DeclarationError(
                f"stream {self.of.name!r} has a column {taken[0]!r}, which history {self.name!r} would write",
                "rename it in the stream.",
                operator=self.name,
                column=taken[0],
            )
        if self.every is not None:
            interval(self.every)

    @property
    def reads(self) -> tuple[Stream, ...]:
        """The stream."""
        return (self.of,)

    @property
    def values(self) -> tuple[str, ...]:
        """The columns of the stream that an interval has."""
        return tuple(name for name in self.of.columns if name != self.of.as_before)

    @property
    def bounds(self) -> tuple[str, ...]:
        """The columns that tell when a row is valid."""
        return (VALID_FROM, VALID_TO) if self.kind == 2 else (VALID_FROM,)

    @property
    def tables(self) -> tuple[TableSpec, ...]:
        """Intervals as they are added and taken back, and the revisions of each key."""
        about = f": {self.description}" if self.description else ""
        return (
            TableSpec(
                "", f"Intervals of history {self.name} as they are added and taken back{about}", bounded=(BATCH,)
            ),
            TableSpec(
                STATE,
                f"Revisions of each key of history {self.name}",
                is_result=False,
                is_state=True,
                bounded=STATE_BOUNDED,
            ),
        )

    @property
    def signed(self) -> bool:
        """True: intervals are added and taken back."""
        return True

    @property
    def times(self) -> tuple[str, ...]:
        """The beginning of an interval."""
        return (VALID_FROM,)

    @property
    def result_key(self) -> tuple[str, ...]:
        """The key of the stream, and the beginning of an interval where there are several."""
        return (*self.of.key, VALID_FROM) if self.kind == 2 else self.of.key

    @property
    def explained_by(self) -> tuple[str, ...]:
        """The key of the stream: its intervals follow from each other."""
        return self.of.key

    @property
    def _time(self) -> str:
        """The time of a revision where no column is named."""
        return self.of.event_time if self.of.snapshots is None else self.of.snapshots.taken_at or INGESTED_AT

    @property
    def fingerprint(self) -> dict[str, Any]:
        """All but what says when results appear."""
        forgets = {} if self.of.forget is None else {"forget": interval(self.of.forget).total_seconds()}
        return {
            "stream": self.of.name,
            "since": self.since or self._time,
            "track": None if self.track is None else list(self.track),
            "kind": self.kind,
            **forgets,
        }

    def columns_of(self, suffix: str = "") -> tuple[ColumnSpec, ...]:
        """Those of the stream, then the bounds."""
        if suffix in (CURRENT, CHANGES):
            return published_columns(self, suffix)
        if suffix:
            return ()
        time = read_from_log(self.of, f"`{self.since}`" if self.since else self._time)
        meanings = {
            VALID_FROM: "When the row began to be as it is here.",
            VALID_TO: "When it was another one, or gone, exclusive; null where it is as here.",
        }
        values = (
            ColumnSpec(name, meaning_of(self.of, name), self.of.types[name], read_from_log(self.of, f"`{name}`"))
            for name in self.values
        )
        return (
            *values,
            *(ColumnSpec(name, meanings[name], "timestamp", time) for name in self.bounds),
            ColumnSpec(ADDED, "The revision that the values are of, and the bounds.", "string"),
            ColumnSpec(SIGN, "1 for an interval that is added, -1 for one that is taken back.", "int"),
            ColumnSpec(REASON, "Whether it follows from a revision in order, or one that came late.", "string"),
            ColumnSpec(BATCH, "Number of the batch that brought the revision, in the log's own sequence.", "bigint"),
            ColumnSpec(DAY, "Date of the beginning, UTC.", "date", time),
        )
