"""State as the argument and the result of a plain function: flat-map with state, and reduce."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from streaming.declare import Keyed, OnError, Order, Stream, check_callable
from streaming.keyed.fold import Key

State = Mapping[str, Any] | None
FlatMap = Callable[[Any, State], tuple[Iterable[Mapping[str, Any]], State]]
Reduce = Callable[[Any, State], Mapping[str, Any]]


@dataclass(frozen=True)
class _FlatMap:
    """Emits what the function makes of row and state, and keeps the state that it returns."""

    function: FlatMap

    def __call__(self, key: Key, row: Any) -> None:
        rows, state = self.function(row, _state_of(key))
        for each in rows:
            key.emit(**each)
        _keep(key, state)


@dataclass(frozen=True)
class _Reduce:
    """Keeps and emits what the function makes of row and state."""

    function: Reduce

    def __call__(self, key: Key, row: Any) -> None:
        reduced = self.function(row, _state_of(key))
        _keep(key, reduced)
        key.emit(**reduced)


def _state_of(key: Key) -> State:
    state = {name: getattr(key, name) for name in key._fields}
    return None if all(value is None for value in state.values()) else state


def _keep(key: Key, state: State) -> None:
    kept = state or {}
    # Set as attributes, so that a field that is not declared is refused with its name.
    for name in {*key._fields, *kept}:
        setattr(key, name, kept.get(name))


def flat_mapped(
    name: str,
    of: Stream,
    *,
    function: FlatMap,
    state: str,
    result: str,
    by: tuple[str, ...] = (),
    order: Order = "arrival",
    on_error: OnError = "pause",
    version: int = 1,
    description: str = "",
) -> Keyed:
    """A keyed function of a pure one: `function(row, state)` returns rows and state (Flink's `flatMapWithState`).

    `state` is handed over by field, or None where nothing is kept of the key; returning None keeps nothing. Rows are
    mappings from the columns of `result` to values.

    Raises:
        DeclarationError: as of `Keyed`.
    """
    check_callable(f"function of {name!r}", function)
    return Keyed(
        name=name,
        of=of,
        by=by,
        state=state,
        result=result,
        on_row=_FlatMap(function),
        order=order,
        on_error=on_error,
        version=version,
        description=description,
    )


def reduced(
    name: str,
    of: Stream,
    *,
    function: Reduce,
    result: str,
    by: tuple[str, ...] = (),
    order: Order = "arrival",
    on_error: OnError = "pause",
    version: int = 1,
    description: str = "",
) -> Keyed:
    """A keyed function that emits with each row what all rows of the key have come to (Flink's `reduce`).

    `function(row, reduced)` returns the columns of `result` by name; `reduced` is what it returned before, None for the
    first row of a key. It is kept for ever, so the keys should be bounded.

    Raises:
        DeclarationError: as of `Keyed`.
    """
    check_callable(f"function of {name!r}", function)
    return Keyed(
        name=name,
        of=of,
        by=by,
        state=result,
        result=result,
        on_row=_Reduce(function),
        order=order,
        on_error=on_error,
        version=version,
        description=description,
    )
