"""Generations: the tables of an operator that was built anew take the place of the old ones all at once.

The commit that replaces the operator's own table is the one that counts. Its other tables are replaced before, and
until then they are read at the version that goes with the old generation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from deltalake import DeltaTable

from streaming.base import OperatorError, counted
from streaming.declare import Operator
from streaming.lake import Lake
from streaming.tables import delta

GENERATION, SUPERSEDED, GONE = "generation", "superseded", "gone"
"""Numbers that a table keeps: its generation, its last version of the one before, 1 if this one has no such table."""

BEFORE, CONTINUES = "before.", "continues."
"""Beginnings of the names of numbers that a table which was built anew keeps: those of the table that it replaced, and
its own when it had followed as much as that one."""

FORGOTTEN = -1
"""The value that replaces a number of an older generation, which no table can be without again."""

BORN = "tidemark.generation"
"""The property of a table that was created in a later generation than the first."""


def generation_of(table: DeltaTable | None) -> int:
    """The number of times an open table was replaced by one that was built anew; 0 also where there is none."""
    if table is None:
        return 0
    number = table.transaction_version(GENERATION)
    return int(table.metadata().configuration.get(BORN, 0)) if number is None else number


def open_beside(own: DeltaTable | None, uri: str) -> DeltaTable | None:
    """Another table of the operator as it goes with `own`, its own table; None where there is none."""
    table = delta.open_table(uri)
    if table is None:
        return None
    if generation_of(table) > generation_of(own):
        return delta.open_table(uri, table.transaction_version(SUPERSEDED) or 0)
    return None if is_gone(table) else table


@dataclass(frozen=True)
class Replaced:
    """A number of a table that was built anew: what it was `before`, and where the new table `continues` from there.

    Each is None where the table did not have the number by then.
    """

    before: int | None
    continues: int | None

    @classmethod
    def of(cls, table: DeltaTable, number: str) -> Self | None:
        """As an open table tells; None where it was never as far as the one that it replaced."""
        generation = table.transaction_version(f"{CONTINUES}{GENERATION}")
        if generation is None or generation != generation_of(table):
            return None
        before, continues = (table.transaction_version(f"{prefix}{number}") for prefix in (BEFORE, CONTINUES))
        return cls(*(None if value == FORGOTTEN else value for value in (before, continues)))


def is_gone(table: DeltaTable) -> bool:
    """True if an open table is only there for readers of the generation before."""
    return table.transaction_version(GONE) == 1


def open_side(lake: Lake, operator: Operator, suffix: str, version: int | None = None) -> DeltaTable | None:
    """A table of the operator beside its own: at one `version`, or the newest that goes with its own table now."""
    uri = lake.table(operator, suffix)
    if version is not None:
        return delta.open_table(uri, version)
    return open_beside(delta.open_table(lake.table(operator)), uri)


def require_table(lake: Lake, operator: Operator, suffix: str) -> DeltaTable:
    """The operator's own table, or one beside it, as they go together now.

    Raises:
        OperatorError: it is not there yet.
    """
    table = open_side(lake, operator, suffix) if suffix else delta.open_table(lake.table(operator))
    if table is None:
        raise OperatorError(
            f"{operator.kind_name} {operator.name!r} has no table {lake.table(operator, suffix)!r} yet; run "
            f"`tidemark run {operator.folder}` first, or point TIDEMARK_HOME to the lake that has it."
        )
    return table


def versions_now(lake: Lake, operator: Operator, *others: str) -> dict[str, int]:
    """The versions of its tables, and of those with the suffixes `others`, as they go together now, by suffix.

    `delta.BEFORE` for a table that is not there.
    """
    own = delta.open_table(lake.table(operator))
    suffixes = dict.fromkeys((*(spec.suffix for spec in operator.tables), *others))
    tables = {to: open_beside(own, lake.table(operator, to)) if to else own for to in suffixes}
    return {to: delta.BEFORE if table is None else table.version() for to, table in tables.items()}


def built_anew(generation: int) -> str:
    """The end of a text about a table's progress: `; built anew 2 times`, nothing for the first generation."""
    return f"; built anew {counted(generation, 'time')}" if generation else ""
