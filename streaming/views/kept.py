"""What a view keeps of rows that it need not read again: the parts of its aggregates, or the rows themselves."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DecimalType, StructType

from streaming.declare import Windowed
from streaming.views.results import ROWS, all_rows


@dataclass(frozen=True)
class Kept:
    """What is kept of some rows beside keys and bounds, as named aggregates.

    `of_rows` makes them of rows, `merged` of what was kept of several lots of them. `wholes` are the view's values made
    of what is kept; empty where that is the rows.
    """

    of_rows: tuple[Column, ...]
    merged: tuple[Column, ...]
    wholes: tuple[Column, ...]


def kept_of(view: Windowed, results: StructType) -> Kept:
    """What a view keeps: the parts of its aggregates, or the rows where they do not tell.

    `results` are the types of its values. They do not tell where the view counts rows once or calls a function, where
    an aggregate has no parts, and of a decimal that is made of doubles.
    """
    parts_suffice = all(
        each.parts and not (each.in_doubles and isinstance(results[name].dataType, DecimalType))
        for name, each in view.aggregates.items()
    )
    if view.distinct or view.function is not None or not parts_suffice:
        return Kept((all_rows(view),), (F.flatten(F.collect_list(ROWS)).alias(ROWS),), ())
    of_rows: list[Column] = []
    merged: list[Column] = []
    wholes: list[Column] = []
    for name, each in view.aggregates.items():
        names = [f"_{name}_{place}" for place in range(len(each.parts))]
        for column, part in zip(names, each.parts, strict=True):
            of_rows.append(F.expr(part.sql).alias(column))
            merged.append(F.expr(part.merged.format(*names)).alias(column))
        wholes.append(F.expr(each.whole.format(*names)).cast(results[name].dataType).alias(name))
    return Kept(tuple(of_rows), tuple(merged), tuple(wholes))
