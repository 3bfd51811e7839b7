"""The declaration of a stream: source, format, event time, clock and rules. Declaring executes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import ClassVar

from streaming.base import (
    INGESTED_AT,
    ORIGIN,
    BadName,
    DeclarationError,
    check_column_name,
    check_condition,
    check_name,
    check_value,
    interval,
    names_in,
    settle,
)
from streaming.clocks import Clock, Derived
from streaming.declare.delivered import OFFERS, What
from streaming.declare.rule import Rule
from streaming.formats import Format
from streaming.sources import Source

_KEPT = ("landing", "reports", "quality")


@dataclass(frozen=True)
class Stream:
    """One event log: what is read, how a payload becomes a row, and which time it carries.

    `derived` adds columns computed by SQL from the payload's, from earlier derived ones, from `_ingested_at` and from
    `_origin`, whose fields are those of the source, such as `_origin.timestamp`;
    a row for which one cannot be computed, such as `a / b` where `b` is 0, or is a time outside the years 1 to 9999, is
    rejected, with the values in the reason.
    `event_time` names a timestamp column, payload or derived (one that is `_ingested_at` means processing time).
    `rules` may also read `_ingested_at`. `keep_raw` keeps the payload of valid rows too.

    `retention`, such as `400 days`, says how long before the watermark the log keeps its days; left out, it keeps all.
    Rows of older days that still come are rejected, with that as the reason, and `maintain` drops the days once nothing
    needs them any more. What was published of them stays. It changes no result, so it may be declared, changed and left
    out at any time; what is dropped stays dropped.

    Raises:
        DeclarationError: a name is unknown, repeated or not allowed, the event time is no timestamp, or the retention
            is shorter than a day.
    """

    name: str
    source: Source
    format: Format
    event_time: str
    clock: Clock
    rules: tuple[Rule, ...] = ()
    derived: Mapping[str, str] = field(default_factory=dict)
    keep_raw: bool = False
    description: str = ""
    retention: str | None = None

    kind_name = "stream"
    delivers: ClassVar[tuple[What, ...]] = OFFERS[kind_name]

    def __post_init__(self) -> None:
        check_folder("stream", self.name)
        settle(self, f"stream {self.name!r}")
        if self.retention is not None and interval(self.retention) < timedelta(days=1):
            raise DeclarationError(
                f"retention={self.retention!r} of stream {self.name!r} is shorter than a day, and whole days are "
                "dropped",
                "give it a length such as '400 days', or leave it out to keep everything.",
                field="retention",
                value=self.retention,
                stream=self.name,
            )
        if isinstance(self.clock, Derived) and not self.source.tells_watermark:
            raise DeclarationError(
                f"the clock of stream {self.name!r} is Derived(), and {type(self.source).__name__} tells no watermark",
                "declare BoundedOutOfOrderness, or follow what is current of results whose windows have a length.",
                stream=self.name,
                field="clock",
            )
        if self.name in _upstream(self):
            raise DeclarationError(
                f"stream {self.name!r} follows itself, by way of {', '.join(_upstream(self))}",
                "give one of them another name.",
                stream=self.name,
            )
        taken = [column.name.lower() for column in self.format.columns]
        for name in self.derived:
            check_column_name(name)
            if name.lower() in taken:
                raise DeclarationError(
                    f"derived column {name!r} of stream {self.name!r} exists already",
                    "rename it.",
                    column=name,
                    stream=self.name,
                )
            taken.append(name.lower())
        self._check_event_time()
        names = [rule.name for rule in self.rules]
        for name in names:
            if names.count(name) > 1:
                raise DeclarationError(
                    f"rule {name!r} of stream {self.name!r} is declared twice", "rename one.", stream=self.name
                )
        for rule in self.rules:
            check_condition(
                f"rule {rule.name!r} of stream {self.name!r}", rule.condition, {**self.types, INGESTED_AT: "timestamp"}
            )
        if self.clock.moved_by is not None:
            check_condition(f"the clock of stream {self.name!r}", self.clock.moved_by, self.types)

    def _check_event_time(self) -> None:
        times = [name for name, type_ in self.types.items() if name in self.derived or type_ == "timestamp"]
        derived = self.types.get(self.event_time)
        if self.event_time not in times or (derived is not None and not derived.startswith("timestamp")):
            raise DeclarationError(
                f"event_time={self.event_time!r} of stream {self.name!r} is no timestamp column"
                f"{'' if derived is None else f', but of type {derived}'}; timestamp or derived columns are: "
                f"{', '.join(times) or 'none'}. For epoch milliseconds derive one with epoch_millis('<column>').",
                field="event_time",
                value=self.event_time,
                stream=self.name,
                choices=tuple(times),
            )

    @cached_property
    def types(self) -> dict[str, str | None]:
        """The Spark type of each column, None where only Spark knows it."""
        types: dict[str, str | None] = {column.name: column.type for column in self.format.columns}
        for name, expression in self.derived.items():
            readable = {**types, INGESTED_AT: "timestamp", ORIGIN: self.source.origin}
            types[name] = check_value(f"derived column {name!r} of stream {self.name!r}", expression, readable)
        return types

    @property
    def reads(self) -> tuple[Stream, ...]:
        """Itself, as its rows come from no other stream."""
        return (self,)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the user's columns, payload first, then derived."""
        return (*(column.name for column in self.format.columns), *self.derived)


def _upstream(stream: Stream) -> list[str]:
    """The names of the streams that a stream follows, however far away."""
    followed = [each for of, _ in stream.source.follows for each in of.reads]
    return list(dict.fromkeys(name for each in followed for name in (each.name, *_upstream(each))))


def epoch_millis(column: str) -> str:
    """SQL for the timestamp of `column` in milliseconds since the epoch; null outside the years 1 to 9999."""
    (name,) = names_in(column)
    return f"case when {name} between -62135596800000 and 253402300799999 then timestamp_millis({name}) end"


def check_folder(what: str, name: str) -> None:
    """Refuse a `name` that cannot be a folder in the root of the lake.

    Raises:
        BadName: it is no name, or the lake keeps that folder for itself.
    """
    check_name(what, name)
    if name in _KEPT:
        raise BadName(
            f"{name!r} cannot name a {what}: the lake keeps {', '.join(_KEPT)} for itself.", "Rename it.", value=name
        )


def check_some_streams(named: str, of: Stream | tuple[Stream, ...]) -> None:
    """Refuse an `of` without a stream; `named` says of which declaration it is.

    Raises:
        DeclarationError: with what to write.
    """
    if of == ():
        raise DeclarationError(f"of= {named} is empty", "write the stream that it reads, or a tuple of several.")
