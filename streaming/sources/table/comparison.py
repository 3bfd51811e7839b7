"""What a followed table says against the log: replaced, changed after it was ingested, or not ingested yet."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streaming.sources.source import Memory, SourceChange, SourceComparison
from streaming.sources.table.followed import Followed

_NAMED = 5


def compare_table(table: Callable[[Memory], Followed], origins: DataFrame) -> SourceComparison:
    """How the table differs from what `origins` (column `_origin`) say of it."""
    it = table({})
    origin = F.col("_origin")
    own = origins.where(origin.isNotNull())
    if "repairs" in origins.select("_origin.*").columns:
        # A row that repairs one has its place.
        own = own.where(origin["repairs"].isNull())
    rows = own.groupBy(origin["table"].alias("table"), origin["unit"].alias("unit")).count().collect()
    ingested = {row["unit"]: row["count"] for row in rows if row["table"] == it.table}
    changes = [
        SourceChange(
            "changed",
            it.uri,
            f"{it.uri} was replaced since: the log has rows of the table {other}, and it is {it.table} now. Run the "
            "pipeline, which says what to do.",
        )
        for other in sorted({row["table"] for row in rows} - {it.table})
    ]
    changed = it.changed_units(ingested)
    if changed:
        named = ", ".join(
            f"{unit} ({ingested[unit]:,}, now {rows:,})" for unit, rows in sorted(changed.items())[:_NAMED]
        )
        more = f" and {len(changed) - _NAMED:,} more" if len(changed) > _NAMED else ""
        changes.append(
            SourceChange(
                "changed",
                it.uri,
                f"{it.uri} has other rows than were ingested, by `_origin.unit`: {named}{more}. Nobody may change rows "
                "that are followed.",
            )
        )
    last = max((row["unit"] for row in rows), default=None)
    waiting = it.rows_since(it.reader(1).first() if last is None else it.offsets_after(last))
    if waiting:
        text = f"{it.uri} has {waiting:,} rows that are not in the log; run the pipeline."
        changes.append(SourceChange("waiting", it.uri, text))
    return SourceComparison(len(rows), "units", tuple(changes))
