"""The tables of an operator, and the logs that it reads, as an audit looks at them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Generic, TypeVar

from pyspark.sql import DataFrame

from streaming.declare import Operator
from streaming.lake import Lake
from streaming.log import Batch
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


@dataclass(frozen=True)
class LogAtVersion:
    """An event log as an audit looks at it: the rows of one Delta `version`, and its `batches`, oldest first.

    `dropped`: the day before which it has no valid row any more; None where none was dropped.
    """

    version: int | None
    rows: DataFrame
    batches: Sequence[Batch]
    dropped: date | None = None
