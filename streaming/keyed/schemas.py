"""The types in which a keyed function keeps columns of its streams, and functions that emit whole rows of them."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from streaming.base import DeclarationError
from streaming.declare import Stream


def type_of(what: str, of: Stream, column: str) -> str:
    """The Spark type in which values of a column are kept.

    Raises:
        DeclarationError: there is no such column, or its type is not known; the text names those whose types are.
    """
    types = _kept_types(of)
    if column not in types:
        raise DeclarationError(
            f"{what} is {column!r}, which is no column of stream {of.name!r} whose type is known; these are: "
            f"{', '.join(types)}. Derive it with a cast, such as cast(... as double)."
        )
    return types[column]


@dataclass(frozen=True)
class CopiesRows(ABC):
    """A function that emits whole rows of its stream, of which it takes the `columns`, as they came.

    Where a column is added to the stream, older rows have null there in the log, and so they have in its results.
    """

    columns: tuple[str, ...]

    @abstractmethod
    def __call__(self, key: Any, row: Any) -> None:
        """Take a row of a key, as `Keyed.on_row` says."""


def row_types(what: str, of: Stream, by: tuple[str, ...]) -> dict[str, str]:
    """The columns of a whole row but for its key, each with the type in which it is kept.

    Raises:
        DeclarationError: the type of one is not known.
    """
    return {column: type_of(what, of, column) for column in of.columns if column not in by}


def _kept_types(of: Stream) -> dict[str, str]:
    """The columns whose types are known, each with the type in which it is kept."""
    types = {**of.types, of.event_time: "timestamp"}
    # A float would be rounded in the state, and is exact as a double.
    return {name: re.sub(r"\bfloat\b", "double", kind) for name, kind in types.items() if kind is not None}


def ddl(types: dict[str, str], prefix: str = "") -> str:
    """The columns as Spark DDL, each name behind `prefix`."""
    return ", ".join(f"`{prefix}{name}` {kind}" for name, kind in types.items())


def struct_of(types: dict[str, str]) -> str:
    """The type of a struct of these columns."""
    return f"struct<{', '.join(f'`{name}`: {kind}' for name, kind in types.items())}>"
