"""Functions of a user, of whole windows and of single rows, where SQL is not enough; workers find them by name.

A number tells whether their text is another one than it was.
"""

from __future__ import annotations

import hashlib
import inspect
import pickle
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any

from streaming.base import DeclarationError, arrow_schema, columns_of

if TYPE_CHECKING:
    import pandas as pd


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


def text_number(functions: Iterable[Any]) -> int:
    """A number that is another one, for all practical purposes, where a function's text is another one."""
    text = "\n".join(map(_text, functions))
    # Delta keeps whole numbers of 64 bits with a sign.
    return int(hashlib.sha256(text.encode()).hexdigest()[:15], 16)


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


@dataclass(frozen=True)
class WindowFunction:
    """`apply` gets all rows of one key and window and returns the window's results, none, one or many.

    It is handed the stream's columns and `_event_time` as a pandas frame, in order of event time, and returns a frame
    with the columns that `returns` declares (Spark DDL, such as `low double, high double`). Whole numbers and booleans
    are pandas' nullable types where there is a null (`Int64`, `boolean`), timestamps `datetime64[us]` in UTC without a
    zone, decimals `Decimal` with all their digits, dates `date`, structs and maps dicts, arrays lists. NaN stands for
    null among doubles, as in pandas; one that was handed in stays a NaN. What does not fit the declared type exactly is
    refused, as a decimal with more digits behind the point is. It must depend on nothing
    else, and it runs in Spark's Python workers, which therefore must be able to import it. Semantics as Flink's
    `ProcessWindowFunction`; its state is every row of the open windows. Raise its `version` when it gives other results
    for the same rows: tables that another version made are then refused until they are rebuilt.
    """

    apply: Callable[[pd.DataFrame], pd.DataFrame]
    returns: str
    version: int = 1

    def __post_init__(self) -> None:
        columns_of(self.returns)

    @property
    def name(self) -> str:
        """Where it is defined."""
        return f"{self.apply.__module__}.{self.apply.__qualname__}"

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the results."""
        return tuple(column.name for column in columns_of(self.returns))


@dataclass(frozen=True)
class RowFunction:
    """`apply(row, opened)` is called for each row and gives the rows that become of it, none, one or many.

    The row has the selected columns as attributes, times as whole microseconds since the epoch, decimals with all their
    digits; what it becomes are
    mappings from the columns that `returns` declares (Spark DDL, such as `n bigint`) to values, null for those left
    out.

    `opens(task)` is a context manager, such as a function with `@contextmanager`, and `opened` what it gives: it is
    entered once before the first row of each task of a step and left once after the last, also when `apply` raises.
    `task` is the number of the task within the step; how rows are dealt out to tasks may differ when a step is
    repeated, so no result may depend on it. Without `opens`, `opened` is None.

    Both run in Spark's Python workers, which must be able to import them. Raise `version` when other rows come of the
    same ones: tables that another version made are then refused until they are rebuilt.

    Raises:
        DeclarationError: `returns` is no list of columns, or a function cannot be found by its name.
    """

    apply: Callable[[Any, Any], Iterable[Mapping[str, Any]]]
    returns: str
    opens: Callable[[int], AbstractContextManager[Any]] | None = None
    version: int = 1

    def __post_init__(self) -> None:
        arrow_schema(self.returns)
        check_callable("apply of a row function", self.apply)
        if self.opens is not None:
            check_callable("opens of a row function", self.opens)

    @property
    def name(self) -> str:
        """Where it is defined."""
        return described(self.apply)
