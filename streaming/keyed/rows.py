"""Rows as a keyed function sees them."""

from __future__ import annotations

from collections import namedtuple
from functools import lru_cache
from typing import Any


@lru_cache(maxsize=256)
def row_class(columns: tuple[str, ...]) -> Any:
    """A class of tuples whose columns are attributes, and by `row["name"]` those that are no name in Python too."""
    plain = namedtuple("Row", columns, rename=True)  # type: ignore[misc]
    places = {name: place for place, name in enumerate(columns)}

    def of_column(row: Any, name: Any) -> Any:
        return tuple.__getitem__(row, places[name] if isinstance(name, str) else name)

    return type("Row", (plain,), {"__slots__": (), "__getitem__": of_column, "columns_": columns})


def as_dict(row: Any) -> dict[str, Any]:
    """The columns of a row by name."""
    return dict(zip(row.columns_, row, strict=True))
