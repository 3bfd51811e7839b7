"""Values of a row as people are told of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streaming.base import names_in
from streaming.spark.guard import first_failure

_LONGEST_VALUE = 200


def named_values(names: Sequence[str], texts: Collection[str]) -> Column:
    """Columns with their values, such as `a=1, code='x', b=null`; those that are `texts` in quotes, and cut."""
    values = (F.concat(F.lit(f"{name}="), _value(name, "'" if name in texts else "")) for name in names)
    return F.concat_ws(", ", *values)


def failure_of(frame: DataFrame, what: str, sql: str, value: Column, beside: str) -> Column:
    """Why `value`, which is `what` and made by the SQL, cannot be computed for a row of `frame`; null where it can.

    With the values of the columns that the SQL reads.
    """
    failure = first_failure([(what, sql, value)], beside)
    read = sorted(names_in(sql) & {*frame.columns})
    texts = {name for name, type_ in frame.dtypes if type_ == "string"}
    return F.concat(failure, F.lit(", of "), named_values(read, texts)) if read else failure


def _value(name: str, quote: str) -> Column:
    # Bytes of whatever encoding may be among them.
    text = F.make_valid_utf8(F.col(f"`{name}`").cast("string"))
    cut = F.when(F.length(text) > _LONGEST_VALUE, F.concat(F.substring(text, 1, _LONGEST_VALUE), F.lit("...")))
    return F.coalesce(F.concat(F.lit(quote), F.coalesce(cut, text), F.lit(quote)), F.lit("null"))
