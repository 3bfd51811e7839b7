"""The parts of aggregates, or rows, that a view keeps between two steps, and the days of which it keeps the numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DecimalType, StructType

from streaming.declare import Windowed
from streaming.lake import Lake
from streaming.log import can_retract
from streaming.operators import generation_of, kept_days, property_of_kept
from streaming.tables import delta
from streaming.views.results import ROWS, all_rows, keeps_rows


@dataclass(frozen=True)
class PartialColumns:
    """The data kept of some rows beside keys and bounds, as named aggregates.

    `of_rows` makes them of rows, `merged` of what was kept of several lots of them. `wholes` are the view's values made
    of what is kept; empty where that is the rows.
    """

    of_rows: tuple[Column, ...]
    merged: tuple[Column, ...]
    wholes: tuple[Column, ...]


def rows_as_partial(*columns: str) -> PartialColumns:
    """The rows themselves, in the lists of these columns."""
    of_rows = (F.collect_list(column).alias(column) for column in columns)
    return PartialColumns(
        tuple(of_rows), tuple(F.flatten(F.collect_list(column)).alias(column) for column in columns), ()
    )


def partial_columns(view: Windowed, results: StructType, pairs: DataFrame) -> PartialColumns:
    """The data that a view keeps: the parts of its aggregates, or the rows where they do not tell.

    `results` are the types of its values, `pairs` some of its pairs, or none. Parts do not tell where the view counts
    rows once or calls a function, where rows may be taken back, where an aggregate has no parts, and of a decimal that
    is made of doubles.
    """
    parts_suffice = all(
        each.parts and not (each.in_doubles and isinstance(results[name].dataType, DecimalType))
        for name, each in view.aggregates.items()
    )
    if keeps_rows(view) or can_retract(pairs) or not parts_suffice:
        return PartialColumns((all_rows(view, pairs),), (F.flatten(F.collect_list(ROWS)).alias(ROWS),), ())
    of_rows: list[Column] = []
    merged: list[Column] = []
    wholes: list[Column] = []
    for name, each in view.aggregates.items():
        names = [f"_{name}_{place}" for place in range(len(each.parts))]
        for column, part in zip(names, each.parts, strict=True):
            of_rows.append(F.expr(part.sql).alias(column))
            merged.append(F.expr(part.merged.format(*names)).alias(column))
        wholes.append(F.expr(each.whole.format(*names)).cast(results[name].dataType).alias(name))
    return PartialColumns(tuple(of_rows), tuple(merged), tuple(wholes))


def keep_days(lake: Lake, view: Windowed, days: Iterable[date]) -> None:
    """Keep the numbers of these days as they are published, and say so to the audit."""
    table = delta.open_table(lake.first(view))
    if table is not None:
        kept = property_of_kept({*kept_days(table), *days}, generation_of(table))
        table.alter.set_table_properties(kept, raise_if_not_exists=False)
