"""The declaration of a stream: source, format, event time, clock and rules. Declaring executes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from streaming.base import (
    INGESTED_AT,
    DeclarationError,
    FrozenMapping,
    check_column_name,
    check_name,
    check_names,
    names_in,
)
from streaming.clocks import Clock
from streaming.declare.rule import Rule
from streaming.formats import Json
from streaming.sources import Source

_RESERVED = ("landing", "reports", "quality")


@dataclass(frozen=True)
class Stream:
    """One event log: what is read, how a payload becomes a row, and which time it carries.

    `derived` adds columns computed by SQL from the payload's, from earlier derived ones and from `_ingested_at`;
    `event_time` names a timestamp column, payload or derived (one that is `_ingested_at` means processing time).
    `rules` may also read `_ingested_at`. `keep_raw` keeps the payload of valid rows too.

    Raises:
        DeclarationError: a name is unknown, repeated or not allowed, or the event time is no timestamp.
    """

    name: str
    source: Source
    format: Json
    event_time: str
    clock: Clock
    rules: tuple[Rule, ...] = ()
    derived: Mapping[str, str] = field(default_factory=dict)
    keep_raw: bool = False
    description: str = ""

    def __post_init__(self) -> None:
        check_name("stream", self.name)
        if self.name in _RESERVED:
            raise DeclarationError(
                f"{self.name!r} cannot name a stream: the lake keeps {', '.join(_RESERVED)} for itself. Rename it."
            )
        object.__setattr__(self, "derived", FrozenMapping(self.derived))
        known = tuple(column.name for column in self.format.columns)
        for name, expression in self.derived.items():
            check_column_name(name)
            if name.lower() in map(str.lower, known):
                raise DeclarationError(f"derived column {name!r} of stream {self.name!r} exists already; rename it.")
            check_names(f"derived column {name!r}", expression, (*known, INGESTED_AT))
            known += (name,)
        self._check_event_time()
        names = [rule.name for rule in self.rules]
        for name in names:
            if names.count(name) > 1:
                raise DeclarationError(f"rule {name!r} of stream {self.name!r} is declared twice; rename one.")
        for rule in self.rules:
            check_names(f"rule {rule.name!r}", rule.condition, (*known, INGESTED_AT))
        if self.clock.moved_by is not None:
            check_names(f"the clock of stream {self.name!r}", self.clock.moved_by, known)

    def _check_event_time(self) -> None:
        types = {column.name: column.type for column in self.format.columns}
        timestamps = [name for name, type_ in types.items() if type_ == "timestamp"] + list(self.derived)
        if self.event_time not in timestamps:
            raise DeclarationError(
                f"event_time={self.event_time!r} of stream {self.name!r} is no timestamp column; timestamp or "
                f"derived columns are: {', '.join(timestamps) or 'none'}. For epoch milliseconds derive one with "
                "epoch_millis('<column>')."
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the user's columns, payload first, then derived."""
        return (*(column.name for column in self.format.columns), *self.derived)


def epoch_millis(column: str) -> str:
    """SQL for the timestamp of `column` in milliseconds since the epoch; null outside the years 1 to 9999."""
    (name,) = names_in(column)
    return f"case when {name} between -62135596800000 and 253402300799999 then timestamp_millis({name}) end"
