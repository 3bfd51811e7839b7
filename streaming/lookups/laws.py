"""The audit of an enrichment: each valid row of the log is in the results, in the failures or pending, once."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import AT, BATCH, ORIGIN, OperatorError, date_literal
from streaming.declare import FAILED, PENDING, Enriched
from streaming.lake import Lake
from streaming.log import valid
from streaming.lookups.reached import Reached
from streaming.lookups.schemas import STEP_COLUMN, select_rows
from streaming.operators import Finding, Law, LogAtVersion, PinnedTables, of_kept_days, whole_in
from streaming.tables import delta


def pin_enriched(lake: Lake, enriched: Enriched) -> PinnedTables[Enriched]:
    """Its tables as they are now: what waits first, so that a row that comes out meanwhile is not missed."""
    versions = {suffix: delta.version_of(lake.table(enriched, suffix)) for suffix in (PENDING, FAILED, "")}
    return PinnedTables(enriched, {to: delta.BEFORE if at is None else at for to, at in versions.items()})


def audit_enriched(
    spark: SparkSession, lake: Lake, pinned: PinnedTables[Enriched], log: LogAtVersion
) -> Iterator[Finding]:
    """The law: the rows of all tables together are those of the log, as far as it is followed, with what is selected.

    Raises:
        OperatorError: nothing is asked for yet.
    """
    enriched = pinned.operator
    if delta.BEFORE in pinned.versions.values():
        raise OperatorError(
            f"enrichment {enriched.name!r} has asked for nothing yet at {lake.table(enriched)!r}; run `tidemark run "
            f"{enriched.folder}` first."
        )
    stood = Reached.of(delta.open_table(lake.table(enriched, PENDING), pinned.versions[PENDING]))
    newest = lake.batch_read(enriched.of)
    through = stood.place.through if newest is None else min(stood.place.through, newest)
    tables = {to: delta.read(spark, lake.table(enriched, to), version) for to, version in pinned.versions.items()}
    outputs = tables[""].select(BATCH, ORIGIN, STEP_COLUMN).unionAll(tables[FAILED].select(BATCH, ORIGIN, STEP_COLUMN))
    # A process that died, or works on, may have written rows that its table of pending ones still has.
    later = outputs.where(F.col(STEP_COLUMN) > stood.step).select(BATCH, ORIGIN)
    waits = tables[PENDING].join(later, [BATCH, ORIGIN], "left_anti")
    selected = select_rows(enriched, valid(log.rows)).where(F.col(BATCH) <= through)
    since = whole_in(lake, enriched, {enriched.of.name: log})
    kept = F.lit(True) if since is None else F.to_date(AT) >= date_literal(since)
    names = [f"`{name}`" for name in selected.columns]

    def followed(rows: DataFrame) -> DataFrame:
        return rows.where((F.col(BATCH) <= through) & kept).select(*names)

    stored = followed(tables[""]).unionAll(followed(tables[FAILED])).unionAll(followed(waits))
    words = f"rows: answered, failed or pending, each once{of_kept_days(since)}"
    yield Law("conservation", enriched.name, stored, selected, words).finding()
