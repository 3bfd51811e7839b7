"""The check that the text of a keyed function is the one that made its state: a change without a version only warns."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from typing import Any

from deltalake import DeltaTable

from streaming.declare import Keyed, described
from streaming.keyed.compatible import copied_fewer_columns, version_of
from streaming.operators import recorded_declaration

SOURCE = "source"
"""The number of the state's table that stands for the functions' text."""


def source_number(keyed: Keyed) -> int:
    """The number of a keyed function's text."""
    return text_number((keyed.on_row, *keyed.timers.values()))


def text_number(functions: Iterable[Any]) -> int:
    """A number that is another one, for all practical purposes, where a function's text is another one."""
    text = "\n".join(map(_text, functions))
    # Delta keeps whole numbers of 64 bits with a sign.
    return int(hashlib.sha256(text.encode()).hexdigest()[:15], 16)


def changed_text(keyed: Keyed, state: DeltaTable | None) -> str | None:
    """A warning where the functions' text is not the one that made the open `state`; None where it is."""
    recorded = None if state is None else state.transaction_version(SOURCE)
    if state is None or recorded is None or recorded == source_number(keyed):
        return None
    made = recorded_declaration(state)
    if made is not None and (version_of(made["makes"]) != keyed.version or copied_fewer_columns(keyed, made["makes"])):
        return None
    return (
        f"the source text of keyed function {keyed.name!r} has changed since its last step, and its version is still "
        f"{keyed.version}. It goes on. If it gives other results for the same rows, raise the version and run "
        f"`tidemark rebuild {keyed.name}`."
    )


def _text(function: Any) -> str:
    """The source of a function; of a piece of this library, that of the functions it was given."""
    if is_dataclass(function):
        parts = (getattr(function, field.name) for field in fields(function))
        return "\n".join([described(function), *(_text(part) for part in parts if callable(part))])
    try:
        return inspect.getsource(function if inspect.isfunction(function) else type(function))
    except (OSError, TypeError):
        # What was typed into a prompt, or is written in C.
        return described(function)
