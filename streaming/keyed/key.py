"""One key as a keyed function sees it: its state as attributes, its timers, and where it emits to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from streaming.base import LAST_MILLISECOND, Encoder, FunctionError, to_micros
from streaming.keyed.rules import RulesInForce

NEVER = -(1 << 62)
"""A time in microseconds before all others."""

FOREVER = 1 << 62
"""A time in microseconds after all others."""

_LAST = to_micros(LAST_MILLISECOND)


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
    the name of the stream that the row is of; None for a timer. `rules`: those in force (`rules=Pinned(...)`), rows of
    the control stream by their keys, such as `key.rules.get(key.key)`; `matching`: those of them whose condition is
    true of the row. Both are in the order of the rules' keys.
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
) -> type[Key]:
    """The class of keys with these state fields and timers, which emit to `out` what `encoders` take, by output.

    Any other attribute is refused, so that no state is lost unseen.
    """
    shared = {"_fields": fields, "_encoders": encoders, "_timer_names": timer_names, "_out": out}
    return type("Key", (Key,), {"__slots__": fields, **shared})
