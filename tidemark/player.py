"""A keyed function played over batches without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import localcontext
from typing import Any

from streaming.base import DECIMALS, DeclarationError, from_micros, read_back, row_class, to_micros
from streaming.clocks import BatchSummary, ClockState, joint_watermark, latest
from streaming.declare import Keyed, Stream
from streaming.keyed import NEVER, Fold, Key, PinnedRules, Pins, RuleHistory
from tidemark.corrected import Come, corrected, key_of, plain
from tidemark.played import Moment, Played

Rows = Iterable[Mapping[str, Any]]

_PROCESSED_AT = datetime(2026, 1, 1, tzinfo=UTC)


def play(
    keyed: Keyed,
    *batches: Rows | Mapping[str, Rows],
    end_of_input: bool = False,
    steps: Sequence[int] | None = None,
) -> Played:
    """Play the function over batches of rows, with the clocks of its streams, and a step after each batch.

    A row maps the stream's columns to values; what is left out is null. Instants are datetimes or ISO 8601 text. Of
    several streams, or with rules, a batch maps the names of streams to rows: `{"thresholds": [...], "readings":
    [...]}`; those that it does not name have no batch then, and rules apply before the rows beside them. What the
    streams would reject is not looked for. `steps` names the batches (0, 1, ...) after which a step ends instead, the
    last one always: results must not depend on it. `end_of_input` moves the clocks past what is pending in the end.

    Raises:
        DeclarationError: a row has an unknown column, or no event time, or a batch is of an unknown stream.
        FunctionError: as in a running pipeline.
    """
    if keyed.condition is not None:
        raise DeclarationError(
            f"rules of keyed function {keyed.name!r} are SQL conditions, which only Spark can ask",
            "use testing.run.",
            operator=keyed.name,
        )
    if keyed.dimensions:
        raise DeclarationError(
            f"the rules of keyed function {keyed.name!r} are rows of history {keyed.dimensions[0].name!r}, which only "
            "Spark can tell",
            "use testing.run.",
            operator=keyed.name,
        )
    signed = next((stream for stream in keyed.streams if stream.takes_back), None)
    if signed is not None:
        raise DeclarationError(
            f"rows of stream {signed.name!r}, which keyed function {keyed.name!r} reads, are taken back by others, "
            "which only Spark can tell",
            "use testing.run, or play the function over a stream without a key.",
            operator=keyed.name,
            stream=signed.name,
        )
    with localcontext(DECIMALS):
        player = _Player(keyed)
        for number, batch in enumerate(batches):
            player.add(batch if isinstance(batch, Mapping) else {keyed.streams[0].name: batch})
            if steps is None or number in steps:
                player.step()
        player.step()
        if end_of_input:
            player.end_of_input()
        return player.played()


@dataclass
class _Log:
    """The log of one stream: how many batches it has, and its clock after them."""

    stream: Stream
    batches: int = 0
    clock: ClockState = field(default_factory=ClockState)

    def add(self, rows: Rows) -> list[tuple[int, int, Any]]:
        """Append a batch; returns event time, stamp and values of each row."""
        stamp = _stamp(self.clock.watermark)
        read = [_read(self.stream, row) for row in rows]
        greatest = latest(*(from_micros(at) for at, _ in read))
        summary = BatchSummary({} if greatest is None else {"": greatest}, len(read), _PROCESSED_AT)
        self.clock = self.stream.clock.advance(self.clock, summary)
        self.batches += 1
        return [(at, stamp, row) for at, row in read]


class _Player:
    def __init__(self, keyed: Keyed) -> None:
        self._keyed = keyed
        self._logs = [_Log(stream) for stream in keyed.streams]
        self._control = None if keyed.rules is None else _Log(keyed.rules.control)
        self._history = None if keyed.rules is None else RuleHistory(keyed.rules)
        self._pinned: list[tuple[int, int]] = []
        self._marks: list[tuple[int, int]] = []
        self._fold = Fold(keyed)
        self._handled: Any = None
        self._pending: list[Come] = []
        self._come: list[Come] = []
        self._kept: dict[tuple[Any, ...], Any] = {}
        self._outputs: dict[str, list[tuple[Any, ...]]] = {to: [] for to in keyed.output_schemas}
        self._late: list[Mapping[str, Any]] = []
        self._moments: list[Moment] = []

    @property
    def _watermark(self) -> datetime | None:
        return joint_watermark(log.clock.watermark for log in self._logs)

    def add(self, batch: Mapping[str, Rows]) -> None:
        """Stamp the rows of a batch, and move the clocks on by them; rules come first."""
        stream_names = [stream.name for stream in self._keyed.reads]
        for name in batch:
            if name not in stream_names:
                raise DeclarationError(
                    f"a batch is of {name!r}, but keyed function {self._keyed.name!r} reads {', '.join(stream_names)}.",
                    operator=self._keyed.name,
                )
        if self._control is not None and self._control.stream.name in batch:
            assert self._history is not None
            for _, _, row in self._control.add(batch[self._control.stream.name]):
                self._history.add(self._control.batches - 1, tuple(row))
        for of, log in enumerate(self._logs):
            if log.stream.name in batch:
                rows = log.add(batch[log.stream.name])
                come = [Come(at, stamp, row, log.batches - 1, of) for at, stamp, row in rows]
                self._pending += come
                self._come += come
                self._pin(log)

    def step(self) -> None:
        """Follow what has come since the last step."""
        clock = _stamp(self._watermark)
        self._fold = Fold(self._keyed, self._rules(), self._tell)
        by_key: dict[tuple[Any, ...], list[Come]] = {key: [] for key in self._kept}
        for entry in self._due(clock):
            by_key.setdefault(key_of(self._keyed, entry), []).append(entry)
        for values, rows in by_key.items():
            kept = self._kept.pop(values, None)
            key = self._fold.begin(values, *(() if kept is None else (kept.state, kept.timers)))
            for at, stamp, row, batch, of in rows:
                self._handled = row
                self._fold.row(key, at, stamp, row, batch, of)
            self._fold.advance(key, clock)
            kept = self._fold.kept(key)
            if kept is not None:
                # As it comes out of the table, where the next step finds it.
                fields = zip(kept.state, self._keyed.state_schema, strict=True)
                self._kept[values] = kept._replace(state=tuple(read_back(value, field.type) for value, field in fields))

    def end_of_input(self) -> None:
        """Move the clocks past the rows and timers that are pending."""
        self._close([entry.at + 1 for entry in self._pending])
        self._close([at for kept in self._kept.values() for at in kept.timers.values()])

    def _close(self, due: list[int]) -> None:
        if due and self._watermark is not None:
            for log in self._logs:
                log.clock, log.batches = log.clock.closed_at(from_micros(max(due))), log.batches + 1
                self._pin(log)
            self.step()

    def played(self) -> Played:
        """The outcome of all steps."""
        keyed, names = self._keyed, self._keyed.state_schema.names
        clock = _stamp(self._watermark)
        return Played(
            outputs=self._outputs,
            current=corrected(keyed, self._outputs, self._come, clock, self._rules())
            if keyed.corrected
            else self._outputs,
            late=self._late,
            state={key: dict(zip(names, kept.state, strict=True)) for key, kept in self._kept.items()},
            timers={key: _instants(kept.timers) for key, kept in self._kept.items() if kept.timers},
            moments=self._moments,
            watermark=self._watermark,
        )

    def _pin(self, log: _Log) -> None:
        if self._control is not None:
            pin = self._control.batches - 1
            self._pinned.append((log.batches - 1, pin))
            if log.clock.watermark is not None:
                self._marks.append((to_micros(log.clock.watermark), pin))

    def _rules(self) -> PinnedRules | None:
        if self._history is None or not self._pinned:
            return None
        return PinnedRules(self._history, Pins.of(self._pinned, self._marks))

    def _due(self, clock: int) -> list[Come]:
        """The rows that this step handles, in their order; late ones of order `event` are put aside."""
        pending, self._pending = self._pending, []
        if self._keyed.order == "arrival":
            return pending
        for entry in pending:
            if entry.at < entry.stamp:
                columns = self._logs[entry.of].stream.columns
                self._late.append(dict(zip(columns, entry.row, strict=True)))
        on_time = [entry for entry in pending if entry.at >= entry.stamp]
        self._pending = [entry for entry in on_time if entry.at >= clock]
        return sorted((entry for entry in on_time if entry.at < clock), key=lambda entry: (entry.at, entry.of))

    def _tell(self, key: Key, timer: str | None) -> None:
        late = ", late" if key.late else ""
        of = f" of {key.stream}" if len(self._logs) > 1 else ""
        what = f"row {self._handled!r}{of}{late}" if timer is None else f"timer {timer}"
        emitted = [(entry.to, plain(self._keyed, entry)) for entry in self._fold.outputs]
        self._fold.outputs.clear()
        for to, row in emitted:
            self._outputs[to].append(row)
        state = {name: getattr(key, name) for name in key._fields}
        rows = tuple(row for _, row in emitted)
        self._moments.append(Moment(key.key, from_micros(key.at), what, rows, state, _instants(key._timers)))


def _read(stream: Stream, row: Mapping[str, Any]) -> tuple[int, Any]:
    """The event time of a row, and the row as a function sees it."""
    unknown = sorted(row.keys() - {*stream.columns})
    if unknown:
        raise DeclarationError(
            f"a row has {', '.join(map(repr, unknown))}, which stream {stream.name!r} does not have; its columns "
            f"are: {', '.join(stream.columns)}.",
            stream=stream.name,
            choices=tuple(stream.columns),
        )
    values = {
        name: _time(row.get(name)) if (stream.types[name] or "").startswith("timestamp") else row.get(name)
        for name in stream.columns
    }
    at = _time(values[stream.event_time])
    if at is None:
        raise DeclarationError(
            f"a row has no {stream.event_time!r}, which is the event time of stream {stream.name!r}: {row!r}.",
            stream=stream.name,
        )
    values[stream.event_time] = at
    return at, row_class(stream.columns)(*values.values())


def _time(value: Any) -> Any:
    instant = datetime.fromisoformat(value) if isinstance(value, str) else value
    return to_micros(instant) if isinstance(instant, datetime) else instant


def _stamp(instant: datetime | None) -> int:
    return NEVER if instant is None else to_micros(instant)


def _instants(timers: Mapping[str, int]) -> dict[str, datetime]:
    return {name: from_micros(at) for name, at in timers.items()}
