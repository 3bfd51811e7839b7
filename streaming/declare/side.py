"""One output of a selection: which rows go to it, and as what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streaming.base import FrozenMapping


@dataclass(frozen=True)
class Side:
    """An output of a selection: its columns, and which rows it takes.

    `select` names columns, or maps names to SQL over one row; left out, all columns of the stream. `where` is a SQL
    condition; a row for which it is not true is removed. `explode`, such as `{"word": "split(text, ' ')"}`, makes a row
    of each element of an array, under that name; `select` and `where` may read it.
    """

    select: tuple[str, ...] | Mapping[str, str] | None = None
    where: str | None = None
    explode: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        for name in ("select", "explode"):
            value = getattr(self, name)
            if isinstance(value, Mapping):
                object.__setattr__(self, name, FrozenMapping(value))

    @property
    def element(self) -> str | None:
        """The name of an element that is exploded; None where nothing is."""
        return next(iter(self.explode), None) if self.explode else None

    def selected(self, columns: tuple[str, ...]) -> Mapping[str, str]:
        """The columns of the output, each with its SQL; `columns` are those of the stream."""
        if isinstance(self.select, Mapping):
            return self.select
        names = self.select
        if names is None:
            names = (*columns, *([] if self.element is None else [self.element]))
        return {name: f"`{name}`" for name in names}

    @property
    def fingerprint(self) -> list[str]:
        """The facts that its rows follow from, in words."""
        columns = "all columns" if self.select is None else ", ".join(_named(self.selected(())))
        exploded = [f"{name} of {sql}" for name, sql in (self.explode or {}).items()]
        return [*(f"each {text}" for text in exploded), *([f"where {self.where}"] if self.where else []), columns]


def _named(selected: Mapping[str, str]) -> list[str]:
    return [name if is_column(sql, name) else f"{sql} as {name}" for name, sql in selected.items()]


def is_column(sql: str, name: str) -> bool:
    """True if the SQL is the column of that name and nothing else."""
    return sql in (name, f"`{name}`")
