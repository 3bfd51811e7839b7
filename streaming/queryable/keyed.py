"""The state of a keyed function, by key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streaming.declare import STATE, Keyed
from streaming.lake import Lake
from streaming.operators import Progress, open_side
from streaming.queryable.answer import Answer, Latest, answered, latest_of, nothing_yet
from streaming.queryable.rows import checked, rows_with

_TIMERS = "_timers"


class StateOfKeys(Latest):
    """The state that a keyed function keeps of its keys after its last step: state fields, and `_timers` by name."""

    def __init__(self, keyed: Keyed, lake: Lake) -> None:
        self._keyed = keyed
        self._lake = lake

    @property
    def keys(self) -> tuple[str, ...]:
        return self._keyed.by

    def read(self, key: Mapping[str, str], limit: int) -> Answer:
        checked(key, self.keys)
        state = open_side(self._lake, self._keyed, STATE)
        if state is None:
            raise nothing_yet(self._keyed)
        # One more tells whether there are more.
        rows = rows_with(state, key, limit=limit + 1)
        at = Progress.of(self._keyed, state)
        batch = dict(at.through) if len(at.through) > 1 else max(at.through.values())
        return answered(state, batch, at.watermark, [self._shown(row) for row in rows], limit)

    def _shown(self, row: Mapping[str, Any]) -> dict[str, Any]:
        return {name: row[name] for name in (*self.keys, *self._keyed.state_schema.names, _TIMERS)}


@latest_of.register
def _(operator: Keyed, lake: Lake) -> Latest:
    return StateOfKeys(operator, lake)
