"""What is current of a keyed function: first results, overlaid with the corrections of activity sessions."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streaming.base import AT, DAY, RETRACTED
from streaming.declare import REPLACES_FROM, REPLACES_UNTIL, Keyed


def current_results(first: DataFrame, corrections: DataFrame | None, keyed: Keyed, output: str = "") -> DataFrame:
    """First results of an output overlaid with its corrections: keys, `_at`, what is emitted, `_corrected`, `_day`.

    A correction stands for all that its key has emitted on its day from `_replaces_from` until `_replaces_until`; where
    it is retracted, nothing does.
    """
    columns = [f"`{name}`" for name in (*keyed.by, AT, *keyed.output_schemas[output].names)]
    shown = first.select(*columns, F.lit(False).alias("_corrected"), DAY)
    if corrections is None:
        return shown
    others = corrections.where(~F.col(RETRACTED)).select(*columns, F.lit(True).alias("_corrected"), DAY)
    return _not_replaced(shown, corrections, keyed).unionByName(others)


def _not_replaced(first: DataFrame, corrections: DataFrame, keyed: Keyed) -> DataFrame:
    names = {name: f"_replaced{place}" for place, name in enumerate((*keyed.by, DAY))}
    replaced = corrections.select(
        *(F.col(f"`{name}`").alias(alias) for name, alias in names.items()), REPLACES_FROM, REPLACES_UNTIL
    ).distinct()
    same = [F.col(f"`{name}`").eqNullSafe(F.col(alias)) for name, alias in names.items()]
    within = (F.col(AT) >= F.col(REPLACES_FROM)) & (F.col(AT) < F.col(REPLACES_UNTIL))
    return first.join(replaced, reduce(Column.__and__, same, within), "left_anti")
