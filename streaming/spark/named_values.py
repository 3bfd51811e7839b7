"""Values of a row as people are told of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

_LONGEST_VALUE = 200


def named_values(names: Sequence[str], texts: Collection[str]) -> Column:
    """Columns with their values, such as `a=1, code='x', b=null`; those that are `texts` in quotes, and cut."""
    values = (F.concat(F.lit(f"{name}="), _value(name, "'" if name in texts else "")) for name in names)
    return F.concat_ws(", ", *values)


def _value(name: str, quote: str) -> Column:
    # Bytes of whatever encoding may be among them.
    text = F.make_valid_utf8(F.col(f"`{name}`").cast("string"))
    cut = F.when(F.length(text) > _LONGEST_VALUE, F.concat(F.substring(text, 1, _LONGEST_VALUE), F.lit("...")))
    return F.coalesce(F.concat(F.lit(quote), F.coalesce(cut, text), F.lit(quote)), F.lit("null"))
