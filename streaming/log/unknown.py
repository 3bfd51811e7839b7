"""Fields that payloads have and nobody declared: how many rows of a batch have each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from pyspark.sql import Column, Row
from pyspark.sql import functions as F

from streaming.base import shown
from streaming.formats import UNKNOWN

OTHERS = "..."
"""Under this name the rarer fields count together."""

_MOST_NAMES = 20
_MOST_SETS = 1_000
_NAMES_OF_A_ROW = 50
_LONGEST_SET, _LONGEST_NAME = 4_000, 100
"""Characters: names are up to whoever sends them, and counts of them are in every commit."""
_BETWEEN = "\x1f"


def unknown_fields() -> Column:
    """An aggregate over parsed rows: how many rows have each set of unknown fields, for `count_unknown`.

    It needs one pass and bounded memory. Where a batch has more than some 700 different sets, the counts of the rarer
    ones are estimates.
    """
    names = F.substring(F.array_join(F.slice(UNKNOWN, 1, _NAMES_OF_A_ROW), _BETWEEN), 1, _LONGEST_SET)
    # The number of sets is given twice: how many are told, and how many are counted.
    return F.call_function("approx_top_k", names, F.lit(_MOST_SETS), F.lit(_MOST_SETS)).alias("unknown")


def count_unknown(sets: Iterable[Row]) -> dict[str, int]:
    """Rows per field, the most frequent first and never more than twenty names, from what `unknown_fields` gives."""
    rows = Counter[str]()
    for names, number in sets:
        rows.update(dict.fromkeys(() if names is None else map(_shown, names.split(_BETWEEN)), number))
    return _bounded(rows)


def _shown(name: str) -> str:
    """A name as people may see it: short, and nothing in it that a terminal obeys."""
    name = " ".join(shown(name).split())
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}{OTHERS}"


def add_unknown(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The counts of several batches together."""
    rows = Counter[str]()
    for count in counts:
        rows.update(count)
    return _bounded(rows)


def _bounded(rows: Counter[str]) -> dict[str, int]:
    others = rows.pop(OTHERS, 0)
    ranked = sorted(rows.items(), key=lambda entry: (-entry[1], entry[0]))
    others += sum(number for _, number in ranked[_MOST_NAMES:])
    return dict(ranked[:_MOST_NAMES]) | ({OTHERS: others} if others else {})
