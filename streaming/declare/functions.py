"""Full-window functions: pandas in, rows out, where an aggregate is not enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from streaming.base import columns_of


@dataclass(frozen=True)
class WindowFunction:
    """`apply` gets all rows of one key and window and returns the window's results, none, one or many.

    It is handed the stream's columns and `_event_time` as a pandas frame, in order of event time, and returns a frame
    with the columns that `returns` declares (Spark DDL, such as `low double, high double`). It must depend on nothing
    else, and it runs in Spark's Python workers, which therefore must be able to import it. Semantics as Flink's
    `ProcessWindowFunction`; its state is every row of the open windows.
    """

    apply: Callable[[pd.DataFrame], pd.DataFrame]
    returns: str

    def __post_init__(self) -> None:
        columns_of(self.returns)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the results."""
        return tuple(column.name for column in columns_of(self.returns))

    def over(self, members: DataFrame, keys: Sequence[str]) -> DataFrame:
        """The results per group of `members` that agree in `keys`: `keys`, then `columns`."""
        apply, names = self.apply, list(self.columns)
        inputs = [name for name in members.columns if name not in ("_order", "_copy", *keys)]
        # Keys travel beside the function: a window is a struct, which pandas has no use for.
        key_fields = [members.schema[name] for name in keys]
        results = cast(StructType, StructType.fromDDL(self.returns))

        def compute(rows: pd.DataFrame) -> pd.DataFrame:
            found = apply(rows.sort_values("_position")[given].reset_index(drop=True))[names].reset_index(drop=True)
            first = rows.iloc[0]
            for place, name in enumerate(keys):
                # Of type object: pandas takes an empty list for numbers, which Spark refuses in place of a window.
                found.insert(place, name, pd.Series([first[name]] * len(found), dtype=object))
            return found

        given = [name for name in inputs if name != "_position"] + [name for name in keys if not name.startswith("_")]
        return (
            members.drop("_order", "_copy")
            .groupBy(*keys)
            .applyInPandas(compute, StructType([*key_fields, *results.fields]))
        )
