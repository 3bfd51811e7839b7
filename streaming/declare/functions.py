"""Full-window functions: pandas in, rows out, where an aggregate is not enough."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from streaming.base import columns_of


@dataclass(frozen=True)
class WindowFunction:
    """`apply` gets all rows of one key and window and returns the window's results, none, one or many.

    It is handed the stream's columns and `_event_time` as a pandas frame, in order of event time, and returns a frame
    with the columns that `returns` declares (Spark DDL, such as `low double, high double`). It must depend on nothing
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
