"""The tables of an operator as an audit looks at them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from streaming.declare import Operator
from streaming.lake import Lake
from streaming.operators.as_of import versions_read

Of = TypeVar("Of", bound=Operator)


@dataclass(frozen=True)
class PinnedTables(Generic[Of]):
    """The tables of an operator at versions of one moment, by suffix; `delta.BEFORE` for those not there."""

    operator: Of
    versions: Mapping[str, int]

    @classmethod
    def now(cls, lake: Lake, operator: Of, *others: str) -> PinnedTables[Of]:
        """As readers of the lake see it now.

        `others` are suffixes of tables that an earlier declaration of the operator may have made.
        """
        return cls(operator, versions_read(lake, operator, *others))
