"""The fold: rows of a key in order become outputs, timers and state. Pure, and the same however the rows are cut.

`Key` is what a function sees of its key.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from streaming.base import (
    LAST_MILLISECOND,
    Encoder,
    FunctionError,
    as_dict,
    encoder,
    normalizer,
    raised,
    said,
    to_micros,
    written,
)
from streaming.declare import FAILED, Keyed
from streaming.keyed.rules import PinnedRules, RulesInForce

NEVER = -(1 << 62)
"""A time in microseconds before all others."""

FOREVER = 1 << 62
"""A time in microseconds after all others."""

_LAST = to_micros(LAST_MILLISECOND)
CHANGE = "change"
"""The attribute of a key that tells whether a row is taken back."""

IDLE = "_idle"
"""The timer that forgets a key; its name comes before those of all others."""


class Output(NamedTuple):
    """An emitted row: the suffix of its table ("" for the results), the key, the time, and the values in order."""

    to: str
    key: tuple[Any, ...]
    at: int
    values: tuple[Any, ...]


class Key:
    """One key. Its state fields are attributes, None where they are unset; times are microseconds since the epoch.

    `key`: the values of the columns in `by`. `at`: the event time of the row, or the time for which the timer was set.
    `late`: whether the row's event time is before its stamp, so that the clock had passed it when it came; in order
    `event`, where late rows come in their place in a correction, always false. `stream`:
    the name of the stream that the row is of; None for a timer. `change` (`retractions=True`): 1 for a row that is
    added, -1 for one that is taken back, with the values that it was added with; None for a timer. `rules`: those in
    force (`rules=Pinned(...)`), rows of the control stream by their keys, such as `key.rules.get(key.key)`, or of a
    history, as they were at `at`; `matching`: those of them whose condition is true of the row. Both are in the order
    of the rules' keys.
    """

    __slots__ = (
        *("_due", "_earliest", "_stamp", "_timers"),
        *("at", "key", "late", "matching", "rules", "stream"),
    )
    # What all keys of a function have in common is in their class.
    _fields: ClassVar[tuple[str, ...]] = ()
    _encoders: ClassVar[Mapping[str, Mapping[str, Encoder]]] = {}
    _timer_names: ClassVar[frozenset[str]] = frozenset()
    _out: ClassVar[list[Output]]

    key: tuple[Any, ...]
    at: int
    late: bool
    stream: str | None
    change: int | None
    rules: RulesInForce
    matching: Sequence[Any]
    _due: int
    _earliest: int
    _stamp: int
    _timers: dict[str, int]

    if TYPE_CHECKING:
        # The state that is declared; a type checker knows no more of it.
        def __getattr__(self, name: str) -> Any: ...

        def __setattr__(self, name: str, value: Any) -> None: ...

    def emit(self, to: str = "", /, **values: Any) -> None:
        """Emit a row to the results, or to the side output `to`; what is left out is null.

        Raises:
            FunctionError: there is no such output or column, or the value is of another type.
        """
        encoders = self._encoders.get(to)
        if encoders is None:
            sides = ", ".join(map(repr, filter(None, self._encoders))) or "none"
            raise FunctionError(f"there is no side output {to!r}; declared in sides= are: {sides}.")
        if not values.keys() <= encoders.keys():
            unknown = ", ".join(map(repr, sorted(values.keys() - encoders.keys())))
            raise FunctionError(
                f"emit has {unknown}, which output {to or 'result'!r} does not declare; its columns are: "
                f"{', '.join(encoders)}."
            )
        try:
            row = tuple([encode(values.get(name)) for name, encode in encoders.items()])
        except ValueError as error:
            raise FunctionError(
                f"emit to output {to or 'result'!r}: {error}; emit a value of the declared type."
            ) from error
        self._out.append(Output(to, self.key, self.at, row))

    def timer(self, name: str, at: int) -> None:
        """Set the timer `name`, or move it, to the time `at`. It fires once the clock has reached it.

        Raises:
            FunctionError: no such timer is declared, or `at` is no time, or has passed: for a timer that fires, its own
                time; for a row, its event time, or if that is less, the clock.
        """
        if name not in self._timer_names:
            names = ", ".join(sorted(self._timer_names)) or "none"
            raise FunctionError(f"there is no timer {name!r}; declared in timers= are: {names}.")
        if not isinstance(at, int) or isinstance(at, bool):
            raise FunctionError(
                f"timer {name!r} is set to {at!r}; set it to microseconds, such as key.at + micros('1 hour')."
            )
        if not self._earliest <= at <= _LAST:
            when = "in the past" if at < self._earliest else "after the year 9999"
            raise FunctionError(
                f"timer {name!r} is set to {at}, which is {when}: the earliest it may be set to now is {self._earliest}"
                f", the latest {_LAST} (microseconds since the epoch)."
            )
        self._set(name, at)

    def cancel(self, name: str) -> None:
        """Take the timer `name` away, if it is set."""
        if self._timers.pop(name, None) is not None:
            self._due = min(self._timers.values(), default=FOREVER)

    def pending(self, name: str) -> int | None:
        """The time to which the timer `name` is set, or None."""
        return self._timers.get(name)

    def clear(self) -> None:
        """Unset all state and cancel all timers: nothing is kept of the key any more."""
        for name in self._fields:
            setattr(self, name, None)
        self._timers.clear()
        self._due = FOREVER

    def _set(self, name: str, at: int) -> None:
        self._timers[name] = at
        self._due = min(self._timers.values())


def key_class(
    fields: tuple[str, ...],
    encoders: Mapping[str, Mapping[str, Encoder]],
    timer_names: frozenset[str],
    out: list[Output],
    *,
    retractions: bool = False,
) -> type[Key]:
    """The class of keys with these state fields and timers, which emit to `out` what `encoders` take, by output.

    Any other attribute is refused, so that no state is lost unseen; `change` is there with `retractions` alone.
    """
    shared = {"_fields": fields, "_encoders": encoders, "_timer_names": timer_names, "_out": out}
    told = {"__slots__": (*fields, CHANGE)} if retractions else {"__slots__": fields, CHANGE: property(_not_told)}
    # An older function may have a state field of that name.
    return type("Key", (Key,), {**shared, **({"__slots__": fields} if CHANGE in fields else told)})


def _not_told(key: Key) -> int:
    raise FunctionError(
        "key.change is for functions that declare retractions=True; without it a function is called for rows that are "
        "added, and never for one that is taken back."
    )


Observe = Callable[[Key, str | None], None]
"""A function that is told of each row and timer once it was handled: the key, and the timer's name, None for a row."""


class KeyState(NamedTuple):
    """The data kept of a key: its state fields in order, as Arrow takes them, and its timers."""

    state: tuple[Any, ...]
    timers: Mapping[str, int]


class Fold:
    """The functions of a declaration, called for one key after another.

    For each key: `begin`, then `row` for each of its rows in order, then `advance` to the clock after the last batch,
    and `kept`. What was emitted gathers in `outputs`, from which the caller takes it whenever it likes. `observe` is
    told of each row and timer once it was handled: the key, and the timer's name, None for a row. `rules` are those for
    the rows and timers to come, where the declaration has some.
    """

    def __init__(
        self,
        keyed: Keyed,
        rules: PinnedRules | None = None,
        observe: Observe | None = None,
    ) -> None:
        self.outputs: list[Output] = []
        self._observe = observe
        self._rules = None if rules is None else rules.opened()
        self._name = keyed.name
        self._streams = tuple(stream.name for stream in keyed.streams)
        self._on_row = keyed.on_row
        self._timers = dict(keyed.timers)
        self._by_event_time = keyed.order == "event"
        self._idle = keyed.idle_micros
        self._retractions = keyed.retractions
        self._call = self._call_or_divert if keyed.diverts else self._call_or_raise
        self._state_encoders = [(field.name, encoder(field.type, exact=True)) for field in keyed.state_schema]
        normalizers = ((field.name, normalizer(field.type)) for field in keyed.state_schema)
        self._normalizers = [(name, *normal) for name, normal in normalizers if normal is not None]
        encoders = {
            to: {field.name: encoder(field.type) for field in schema}
            for to, schema in keyed.output_schemas.items()
            if to != FAILED
        }
        fields = tuple(keyed.state_schema.names)
        self._unset = (None,) * len(fields)
        self._batch = 0
        names = frozenset(self._timers)
        self._class = key_class(fields, encoders, names, self.outputs, retractions=self._retractions)

    def begin(self, values: tuple[Any, ...], state: Sequence[Any] = (), timers: Mapping[str, int] | None = None) -> Key:
        """The key with these values of `by`, with the state and timers that were kept of it, if any."""
        key = self._class()
        key.key, key.at, key.late, key.stream = values, NEVER, False, None
        if self._rules is not None:
            key.rules, key.matching = self._rules.none, ()
        for name, value in zip(key._fields, state or self._unset, strict=True):
            setattr(key, name, value)
        key._timers = dict(timers) if timers else {}
        key._due = min(timers.values()) if timers else FOREVER
        key._earliest = NEVER
        return key

    def row(
        self,
        key: Key,
        at: int,
        stamp: int,
        row: Any,
        batch: int = 0,
        of: int = 0,
        true: Sequence[int] = (),
        change: int = 1,
    ) -> None:
        """The next row of the key: its event time, its stamp (`NEVER` where it has none), and what it holds.

        `batch` is the one that brought it, to the stream at place `of` in the declaration; `true` are the places of the
        rules whose condition is true of it; `change` is -1 for a row that is taken back.
        """
        self._batch = batch
        before = at if self._by_event_time else stamp
        if key._due <= before:
            self.advance(key, before)
        key.at, key.late, key.stream, key._stamp = at, at < stamp, self._streams[of], stamp
        if self._retractions:
            key.change = change
        if self._rules is not None:
            key.rules = self._rules.of_row(batch, at)
            key.matching = self._rules.matching(key.rules, true) if true else ()
        key._earliest = at if self._by_event_time or at < stamp else stamp
        ends = None
        if self._idle is not None:
            ends = max(at + self._idle, key._timers.get(IDLE, NEVER))
            key._set(IDLE, ends)
        self._call(key, None, self._on_row, row)
        if ends is not None:
            self._forget_at(key, ends)
        if self._observe is not None:
            self._observe(key, None)

    def advance(self, key: Key, clock: int) -> None:
        """Fire the timers up to `clock`: by time, and those of one time by name."""
        while key._due <= clock:
            at, name = min((at, name) for name, at in key._timers.items())
            ends = key._timers.get(IDLE)
            key.cancel(name)
            key.at, key.late, key._earliest, key.stream = at, False, at + 1, None
            if self._retractions:
                key.change = None
            if self._rules is not None:
                key.rules, key.matching = self._rules.of_time(at, key.rules), ()
            if name == IDLE:
                key.clear()
            elif name in self._timers:
                self._call(key, name, self._timers[name])
                if ends is not None:
                    self._forget_at(key, ends)
            if self._observe is not None:
                self._observe(key, name)

    def kept(self, key: Key) -> KeyState | None:
        """The state and the timers to be kept of the key; None where all is unset and no timer is pending.

        Raises:
            FunctionError: a state field holds what its type cannot.
        """
        state, nothing = [], not key._timers
        for name, encode in self._state_encoders:
            try:
                value = encode(getattr(key, name))
                state.append(value)
                nothing = nothing and value is None
            except ValueError as error:
                raise FunctionError(
                    f"keyed function {self._name!r} left in state field {name!r} of key {key.key!r} what it cannot "
                    f"keep: {error}. State: {_state(key)}. Correct the function. Nothing of this step was kept."
                ) from error
        return None if nothing else KeyState(tuple(state), dict(key._timers))

    def _forget_at(self, key: Key, at: int) -> None:
        """Forget the key at that time, also where the function has cleared it and then kept something."""
        if IDLE not in key._timers and (key._timers or any(getattr(key, name) is not None for name in key._fields)):
            key._set(IDLE, at)

    def _normalize(self, key: Key) -> None:
        """Normalize the state: what a function finds must not depend on whether it was stored in between."""
        for name, usual, normalize in self._normalizers:
            value = getattr(key, name)
            if value.__class__ is not usual:
                setattr(key, name, normalize(value))

    def _call_or_raise(self, key: Key, timer: str | None, function: Callable[..., None], *row: Any) -> None:
        try:
            function(key, *row)
            self._normalize(key)
        # A function that ends its process would end a worker of Spark, and with it the step of all keys.
        except (Exception, SystemExit) as error:
            batch = f", batch {self._batch} of stream {key.stream!r}" if timer is None else ""
            raise FunctionError(
                f"keyed function {self._name!r} raised in {_what(timer)} of key {key.key!r} at {key.at}{batch}: "
                f"{_told(error, raised(error))} {_given(row)}State then: {_state(key)}. Correct the function, or "
                "declare on_error='side' to send such rows to the side output 'failed'. Nothing of this step was kept."
            ) from error

    def _call_or_divert(self, key: Key, timer: str | None, function: Callable[..., None], *row: Any) -> None:
        # The function may change a list or dict of its state in place.
        state = {name: copy.deepcopy(getattr(key, name)) for name in key._fields}
        timers, emitted = dict(key._timers), len(self.outputs)
        try:
            function(key, *row)
            self._normalize(key)
            # Found at the end of a step, it would be no row's fault any more.
            self.kept(key)
        except (Exception, SystemExit) as error:
            for name, value in state.items():
                setattr(key, name, value)
            key._timers.clear()
            key._timers.update(timers)
            key._due = min(timers.values(), default=FOREVER)
            del self.outputs[emitted:]
            held = as_json(as_dict(row[0])) if row else None
            self.outputs.append(
                Output(
                    FAILED,
                    key.key,
                    key.at,
                    (_told(error, written(f"{type(error).__name__}: {said(error)}")), timer, held, as_json(state)),
                )
            )


def as_json(value: Any) -> str:
    """The value as JSON; what that does not have, such as a date, is as Python writes it, also as the key of a map."""
    try:
        return json.dumps(value, default=str)
    except TypeError:
        return json.dumps(_with_text_keys(value), default=str)


def _with_text_keys(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _with_text_keys(each) for name, each in value.items()}
    return [_with_text_keys(each) for each in value] if isinstance(value, list | tuple) else value


def _what(timer: str | None) -> str:
    return "on_row" if timer is None else f"timer {timer!r}"


def _told(error: BaseException, text: str) -> str:
    return str(error) if isinstance(error, FunctionError) else f"{text}."


def _given(row: tuple[Any, ...]) -> str:
    return f"Row: {as_json(as_dict(row[0]))}. " if row else ""


def _state(key: Key) -> str:
    return as_json({name: getattr(key, name) for name in key._fields})
