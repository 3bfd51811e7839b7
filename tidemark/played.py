"""A keyed function played over batches without Spark: what it emits, and its state and timers at each moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from streaming.base import DeclarationError, from_micros, to_micros
from streaming.clocks import BatchSummary, ClockState, latest
from streaming.declare import Keyed
from streaming.keyed import NEVER, Fold, Key, Output, read_back, row_class

_PROCESSED_AT = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Moment:
    """One moment of a key: what happened at `at`, what was emitted, and what was kept of it afterwards."""

    key: tuple[Any, ...]
    at: datetime
    what: str
    emitted: tuple[tuple[Any, ...], ...]
    state: Mapping[str, Any]
    timers: Mapping[str, datetime]

    def __str__(self) -> str:
        state = ", ".join(f"{name}={value!r}" for name, value in self.state.items() if value is not None)
        timers = ", ".join(f"{name} at {at:%H:%M:%S.%f}" for name, at in self.timers.items())
        parts = (*(f"emits {row}" for row in self.emitted), f"state {state or 'empty'}", timers and f"timers {timers}")
        return f"{self.at:%H:%M:%S.%f} {self.key} {self.what}: {'; '.join(filter(None, parts))}"


@dataclass(frozen=True)
class Played:
    """What became of it: `outputs` by the suffix of their table, `late` rows (order `event` only), state and timers.

    Rows of an output are tuples in the order in which they were emitted: the key, the time, the values. `str` tells the
    `moments` one per line.
    """

    outputs: Mapping[str, list[tuple[Any, ...]]]
    late: list[Mapping[str, Any]]
    state: Mapping[tuple[Any, ...], Mapping[str, Any]]
    timers: Mapping[tuple[Any, ...], Mapping[str, datetime]]
    moments: list[Moment]
    watermark: datetime | None

    @property
    def results(self) -> list[tuple[Any, ...]]:
        """The rows of the function's own table."""
        return self.outputs[""]

    def __str__(self) -> str:
        return "\n".join(map(str, self.moments))


def play(
    keyed: Keyed,
    *batches: Iterable[Mapping[str, Any]],
    end_of_input: bool = False,
    steps: Sequence[int] | None = None,
) -> Played:
    """Play the function over batches of rows, with the clock of its stream, and a step after each batch.

    A row maps the stream's columns to values; what is left out is null. Instants are datetimes or ISO 8601 text.
    `steps` names the batches (0, 1, ...) after which a step ends instead, the last one always: results must not
    depend on it. `end_of_input` moves the clock past what is pending in the end.

    Raises:
        DeclarationError: a row has an unknown column, or no event time.
        FunctionError: as in a running pipeline.
    """
    player = _Player(keyed)
    for number, batch in enumerate(batches):
        player.add(batch)
        if steps is None or number in steps:
            player.step()
    player.step()
    if end_of_input:
        player.end_of_input()
    return player.played()


class _Player:
    def __init__(self, keyed: Keyed) -> None:
        self._keyed = keyed
        self._fold = Fold(keyed, self._tell)
        self._handled: Any = None
        self._row = row_class(keyed.of.columns)
        self._state = ClockState()
        self._pending: list[tuple[int, int, Any]] = []
        self._kept: dict[tuple[Any, ...], Any] = {}
        self._outputs: dict[str, list[tuple[Any, ...]]] = {to: [] for to in keyed.output_schemas}
        self._late: list[Mapping[str, Any]] = []
        self._moments: list[Moment] = []

    def add(self, batch: Iterable[Mapping[str, Any]]) -> None:
        """Stamp the rows of a batch, and move the clock on by them."""
        stamp = _micros(self._state.watermark)
        rows = [self._read(row) for row in batch]
        self._pending += [(at, stamp, row) for at, row in rows]
        greatest = latest(*(from_micros(at) for at, _ in rows))
        summary = BatchSummary({} if greatest is None else {"": greatest}, len(rows), _PROCESSED_AT)
        self._state = self._keyed.of.clock.advance(self._state, summary)

    def step(self) -> None:
        """Follow what has come since the last step."""
        clock = _micros(self._state.watermark)
        by_key: dict[tuple[Any, ...], list[tuple[int, int, Any]]] = {key: [] for key in self._kept}
        for at, stamp, row in self._due(clock):
            by_key.setdefault(tuple(row[name] for name in self._keyed.by), []).append((at, stamp, row))
        for values, rows in by_key.items():
            kept = self._kept.pop(values, None)
            key = self._fold.begin(values, *(() if kept is None else (kept.state, kept.timers)))
            for at, stamp, row in rows:
                self._handled = row
                self._fold.row(key, at, stamp, row)
            self._fold.advance(key, clock)
            kept = self._fold.kept(key)
            if kept is not None:
                # As it comes out of the table, where the next step finds it.
                fields = zip(kept.state, self._keyed.state_schema, strict=True)
                self._kept[values] = replace(kept, state=tuple(read_back(value, field.type) for value, field in fields))

    def end_of_input(self) -> None:
        """Move the clock past the rows and timers that are pending."""
        self._close([at + 1 for at, _, _ in self._pending])
        self._close([at for kept in self._kept.values() for at in kept.timers.values()])

    def _close(self, due: list[int]) -> None:
        if due:
            self._state = self._state.closed_at(from_micros(max(due)))
            self.step()

    def played(self) -> Played:
        """What became of all steps."""
        names = self._keyed.state_schema.names
        return Played(
            outputs=self._outputs,
            late=self._late,
            state={key: dict(zip(names, kept.state, strict=True)) for key, kept in self._kept.items()},
            timers={key: _instants(kept.timers) for key, kept in self._kept.items() if kept.timers},
            moments=self._moments,
            watermark=self._state.watermark,
        )

    def _due(self, clock: int) -> list[tuple[int, int, Any]]:
        """The rows that this step handles, in their order; late ones of order `event` are put aside."""
        pending, self._pending = self._pending, []
        if self._keyed.order == "arrival":
            return pending
        self._late += [dict(zip(self._keyed.of.columns, row, strict=True)) for at, stamp, row in pending if at < stamp]
        on_time = [entry for entry in pending if entry[0] >= entry[1]]
        self._pending = [entry for entry in on_time if entry[0] >= clock]
        return sorted((entry for entry in on_time if entry[0] < clock), key=lambda entry: entry[0])

    def _tell(self, key: Key, timer: str | None) -> None:
        late = ", late" if key.late else ""
        what = f"row {self._handled!r}{late}" if timer is None else f"timer {timer}"
        emitted = [(entry.to, self._plain(entry)) for entry in self._fold.outputs]
        self._fold.outputs.clear()
        for to, row in emitted:
            self._outputs[to].append(row)
        state = {name: getattr(key, name) for name in key._fields}
        rows = tuple(row for _, row in emitted)
        self._moments.append(Moment(key.key, from_micros(key.at), what, rows, state, _instants(key._timers)))

    def _plain(self, output: Output) -> tuple[Any, ...]:
        kinds = [field.type for field in self._keyed.output_schemas[output.to]]
        values = (
            from_micros(value) if pa.types.is_timestamp(kind) and value is not None else value
            for kind, value in zip(kinds, output.values, strict=True)
        )
        return (*output.key, from_micros(output.at), *values)

    def _read(self, row: Mapping[str, Any]) -> tuple[int, Any]:
        stream = self._keyed.of
        unknown = sorted(row.keys() - {*stream.columns})
        if unknown:
            raise DeclarationError(
                f"a row has {', '.join(map(repr, unknown))}, which stream {stream.name!r} does not have; its columns "
                f"are: {', '.join(stream.columns)}."
            )
        values = {
            name: _time(row.get(name)) if (stream.types[name] or "").startswith("timestamp") else row.get(name)
            for name in stream.columns
        }
        at = _time(values[stream.event_time])
        if at is None:
            raise DeclarationError(
                f"a row has no {stream.event_time!r}, which is the event time of stream {stream.name!r}: {row!r}."
            )
        values[stream.event_time] = at
        return at, self._row(*values.values())


def _time(value: Any) -> Any:
    instant = datetime.fromisoformat(value) if isinstance(value, str) else value
    return to_micros(instant) if isinstance(instant, datetime) else instant


def _micros(instant: datetime | None) -> int:
    return NEVER if instant is None else to_micros(instant)


def _instants(timers: Mapping[str, int]) -> dict[str, datetime]:
    return {name: from_micros(at) for name, at in timers.items()}
