"""What a step selects: a column for each output, so that one pass over the rows fills all of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from streaming.base import AT, BATCH, DAY, ORIGIN
from streaming.declare import ELEMENT, Selected, Side, Stream

_FROM = "_from"


def select_all(selected: Selected, rows: Mapping[str, DataFrame]) -> DataFrame:
    """The valid `rows` of each stream's log, with a column for each output in the order of `selected.outputs`.

    A column is a struct of what goes into the output, null for a row that its filter removes; where rows are exploded
    it is an array of such.
    """
    origins = {stream.name: rows[stream.name].schema[ORIGIN].dataType for stream in selected.reads}
    parts = [
        rows[stream.name]
        .withColumns({AT: F.col(f"`{stream.event_time}`"), _FROM: origin_of(stream, origins)})
        .select(*(_column(side, stream).alias(f"_{place}") for place, side in enumerate(selected.outputs.values())))
        for stream in selected.reads
    ]
    return reduce(DataFrame.unionAll, parts)


def origin_of(stream: Stream, origins: Mapping[str, object]) -> Column:
    """`_origin` as the tables have it: of several streams, a struct with a field for each, null but for one."""
    if len(origins) == 1:
        return F.col(ORIGIN)
    fields = (
        (F.col(ORIGIN) if name == stream.name else F.lit(None).cast(kind)).alias(name)  # type: ignore[arg-type]
        for name, kind in origins.items()
    )
    return F.struct(*fields)


def columns_by_output(selected: Selected, frame: DataFrame) -> dict[str, StructType]:
    """The columns of each output, of a frame that `select_all` gave."""
    kinds = (field.dataType for field in frame.schema.fields)
    return {
        to: kind if isinstance(kind, StructType) else kind.elementType  # type: ignore[attr-defined]
        for to, kind in zip(selected.outputs, kinds, strict=True)
    }


def _column(side: Side, stream: Stream) -> Column:
    values = [f"({sql}\n) as `{name}`" for name, sql in side.selected(stream.columns).items()]
    added = [AT, BATCH, f"{_FROM} as {ORIGIN}", *([ELEMENT] if side.element else []), DAY]
    whole = f"struct({', '.join([*values, *added])})"
    kept = whole if side.where is None else f"if(({side.where}\n), {whole}, null)"
    if side.explode is None:
        return F.expr(kept)
    ((name, array),) = side.explode.items()
    return F.expr(f"transform(({array}\n), (`{name}`, {ELEMENT}) -> {kept})")
