"""Functions that a declaration holds: other processes must find them by their names."""

from __future__ import annotations

import pickle
from dataclasses import fields, is_dataclass
from typing import Any

from streaming.base import DeclarationError


def check_callable(what: str, function: object) -> None:
    """Refuse a `function` for `what` that cannot be called, or cannot be found by its name in another process.

    Raises:
        DeclarationError: with what to write.
    """
    if not callable(function):
        raise DeclarationError(f"{what} is {function!r}, which cannot be called", "give it a function.")
    try:
        pickle.dumps(function)
        hash(function)
    except Exception as error:
        raise DeclarationError(
            f"{what} is {function!r}, which Spark's workers cannot find by its name ({error})",
            "write it as a function of a module, with `def`.",
        ) from error


def described(function: Any) -> str:
    """A function in words that stay the same from process to process: where it is defined, and what it was given."""
    if is_dataclass(function) and not isinstance(function, type):
        given = ((entry.name, getattr(function, entry.name)) for entry in fields(function))
        parts = (f"{name}={described(value) if callable(value) else repr(value)}" for name, value in given)
        return f"{type(function).__module__}.{type(function).__qualname__}({', '.join(parts)})"
    kind = function if hasattr(function, "__qualname__") else type(function)
    return f"{kind.__module__}.{kind.__qualname__}"
