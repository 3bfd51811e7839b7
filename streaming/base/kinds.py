"""Functions that each kind of operator implements in its room, which is imported when one is called for it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

_IMPLEMENTED = {
    "Operator": ("streaming.operators.runtime", "streaming.changes.following"),
    "Stream": ("streaming.log.read",),
    "Windowed": ("streaming.views.operator", "streaming.queryable.windowed"),
    "TwoSided": ("streaming.joins.windows", "streaming.queryable.windowed"),
    "Joined": ("streaming.joins.operator",),
    "Keyed": ("streaming.keyed.operator", "streaming.queryable.keyed"),
    "Selected": ("streaming.selected.operator",),
    "Enriched": ("streaming.lookups.operator",),
    "History": ("streaming.revisions.history",),
    "View": ("streaming.sqlviews.operator",),
}
"""The modules that implement something for a kind, by the name of its class."""


@functools.cache
def _import_implementations(kind: type) -> None:
    for each in kind.__mro__:
        for module in _IMPLEMENTED.get(each.__name__, ()):
            import_module(module)


if TYPE_CHECKING:
    from functools import singledispatch as by_kind
else:

    def by_kind(function: Callable[..., Any]) -> Callable[..., Any]:
        """A `singledispatch` that finds also what a room registers that nobody has imported yet."""
        dispatched = functools.singledispatch(function)

        @functools.wraps(function)
        def called(of: object, *arguments: object) -> Any:
            _import_implementations(type(of))
            return dispatched(of, *arguments)

        called.register = dispatched.register
        return called
