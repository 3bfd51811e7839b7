"""The fold: rows of a key in order become outputs, timers and state. Pure, and the same however the rows are cut."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from streaming.base import FunctionError, encoder, normalizer, raised, said, written
from streaming.declare import FAILED, Keyed
from streaming.keyed.key import FOREVER, NEVER, Key, Output, key_class
from streaming.keyed.rows import as_dict
from streaming.keyed.rules import PinnedRules

IDLE = "_idle"
"""The timer that forgets a key; its name comes before those of all others."""


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
        observe: Callable[[Key, str | None], None] | None = None,
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
        self._class = key_class(fields, encoders, frozenset(self._timers), self.outputs)

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
        self, key: Key, at: int, stamp: int, row: Any, batch: int = 0, of: int = 0, true: Sequence[int] = ()
    ) -> None:
        """The next row of the key: its event time, its stamp (`NEVER` where it has none), and what it holds.

        `batch` is the one that brought it, to the stream at place `of` in the declaration; `true` are the places of the
        rules whose condition is true of it.
        """
        self._batch = batch
        before = at if self._by_event_time else stamp
        if key._due <= before:
            self.advance(key, before)
        key.at, key.late, key.stream, key._stamp = at, at < stamp, self._streams[of], stamp
        if self._rules is not None:
            key.rules = self._rules.of_batch(batch)
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
