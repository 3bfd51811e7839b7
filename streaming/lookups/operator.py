"""Enrichments as an operator: their law, and what the rooms above know of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import AT, BATCH, ORIGIN, STEP_COLUMN, WRITTEN_AT, OperatorError, counted, date_literal
from streaming.declare import FAILED, PENDING, Enriched, Stream, described, text_number
from streaming.keyed import SOURCE
from streaming.lake import Lake
from streaming.log import head, valid
from streaming.lookups.calls import capacity_of
from streaming.lookups.steps import EnrichedAnalysis, EnrichedSteps, Piece
from streaming.lookups.tables import Reached, select_rows
from streaming.operators import (
    Finding,
    Law,
    LogAtVersion,
    OperatorRuntime,
    PinnedTables,
    Step,
    Written,
    check_declaration,
    check_followed,
    of_kept_days,
    runtime_of,
    versions_now,
    whole_in,
)
from streaming.sources import UnitTable, check_has_side
from streaming.tables import delta

_log = logging.getLogger("tidemark")


@runtime_of.register
def _(operator: Enriched, lake: Lake) -> OperatorRuntime:
    return EnrichedRuntime(operator, lake)


class EnrichedRuntime(OperatorRuntime):
    """An enrichment runs in steps over its log; calls in flight go on between them."""

    operator: Enriched

    def __init__(self, enriched: Enriched, lake: Lake) -> None:
        self.operator = enriched
        self.lake = lake
        self._steps: EnrichedSteps | None = None

    def unit_table(self, output: str = "") -> UnitTable:
        of = self.operator
        check_has_side(of.name, of.kind_name, output, ("", FAILED))
        return UnitTable(
            uri=self.lake.table(of, output),
            # Each step has a greater number than the one before it, and writes each table once.
            unit=STEP_COLUMN,
            unit_name="step",
            written=WRITTEN_AT,
            at=AT,
            made_by=f"run `tidemark run {of.folder}` first, so that it has rows",
            order=(BATCH, ORIGIN),
            instants=False,
        )

    def analyse(self, spark: SparkSession, columns: Mapping[str, str]) -> None:
        _ = EnrichedAnalysis.once(spark, self.operator, columns).rows.schema

    def check(self) -> None:
        check_declaration(self.lake, self.operator)
        table = delta.open_table(self.lake.table(self.operator))
        recorded = None if table is None else table.transaction_version(SOURCE)
        if recorded not in (None, text_number((self.operator.call,))):
            _log.warning(
                f"the source text of the call of enrichment {self.operator.name!r} has changed since its last step, "
                f"and its version is still {self.operator.version}. It goes on. If it answers otherwise, raise the "
                "version, which is written to each row."
            )

    def steps(self, spark: SparkSession, now: Callable[[], datetime]) -> Iterator[Step]:
        steps = self._steps_on(spark, now)
        while (piece := steps.next_piece()) is not None:
            yield Step({self.operator.of.name: piece.batches}, partial(self._step, steps, piece))

    def read_through(self) -> Mapping[str, int]:
        pending = delta.open_table(self.lake.table(self.operator, PENDING))
        return {self.operator.of.name: Reached.of(pending).place.through}

    def needs_since(self, spark: SparkSession | None, stream: Stream, since: Mapping[str, date]) -> date | None:
        # What waits for an answer has a table of its own.
        return since[stream.name]

    def through(self) -> Mapping[str, int]:
        return {self.operator.of.name: Reached.of(delta.open_table(self.lake.table(self.operator))).place.through}

    def waiting(self) -> int:
        """Those that were asked about and have no answer yet, too."""
        at = Reached.of(delta.open_table(self.lake.table(self.operator))).place
        return super().waiting() - at.row + delta.row_count(delta.open_table(self.lake.table(self.operator, PENDING)))

    @property
    def readable(self) -> Mapping[str, Callable[[SparkSession], DataFrame]]:
        return {to or "current": partial(self._read, to) for to in ("", FAILED, PENDING)}

    def described(self, analysis: Mapping[str, Any]) -> dict[str, str]:
        return _described(self.lake, self.operator)

    def position(self) -> str:
        return _position(self.lake, self.operator)

    def pin(self, spark: SparkSession) -> PinnedTables[Enriched]:
        return pin_enriched(self.lake, self.operator)

    def versions(self) -> Mapping[str, int]:
        # As of an older batch the newest rows are read: an answer stays as it is.
        return versions_now(self.lake, self.operator)

    def first_at(self, spark: SparkSession, version: int) -> DataFrame:
        return self._as_of(super().first_at(spark, version))

    def laws(
        self, spark: SparkSession, pinned: PinnedTables[Enriched], logs: Mapping[str, LogAtVersion]
    ) -> Iterator[Finding]:
        return audit_enriched(spark, self.lake, pinned, logs[self.operator.of.name])

    def refresh(self) -> None:
        self.close()

    def close(self) -> None:
        if self._steps is not None:
            self._steps.close()
            self._steps = None

    def _read(self, suffix: str, spark: SparkSession) -> DataFrame:
        enriched, uri = self.operator, self.lake.table(self.operator, suffix)
        if not delta.exists(uri):
            raise OperatorError(
                f"enrichment {enriched.name!r} has no table {uri!r} yet; run `tidemark run {enriched.folder}` first, "
                "or point TIDEMARK_HOME to the lake that has it."
            )
        return self._as_of(delta.read(spark, uri)).orderBy(BATCH, ORIGIN)

    def _as_of(self, rows: DataFrame) -> DataFrame:
        """Those of the batches up to that of which the lake is read."""
        enriched, newest = self.operator, self.lake.batch_read(self.operator.of)
        if newest is None:
            return rows
        check_followed(enriched, self.through()[enriched.of.name], head(self.lake, enriched.of))
        # An answer stays as it is, so that those to older rows are those that were there then, or came later.
        return rows.where(F.col(BATCH) <= newest)

    def _step(self, steps: EnrichedSteps, piece: Piece) -> Written:
        try:
            return steps.step(piece)
        except BaseException:
            # What is kept in memory may not be what the tables say any more.
            self.close()
            raise

    def _steps_on(self, spark: SparkSession, now: Callable[[], datetime]) -> EnrichedSteps:
        # Kept, because calls are in flight.
        if self._steps is None:
            self._steps = EnrichedSteps(spark, self.lake, self.operator, now)
        return self._steps


def _described(lake: Lake, enriched: Enriched) -> dict[str, str]:
    each = f"each {', '.join(enriched.key)}" if enriched.key else "each row"
    answers = f" Answers are kept for {enriched.cache}." if enriched.cache else ""
    return {
        "results": f"rows of {enriched.of.name} with {', '.join(enriched.result)}, {_count(lake, enriched, '')}",
        "computed": f"{described(enriched.call)} version {enriched.version} for {each}, as {_how(enriched)}.{answers}",
        "order": _order(enriched),
        "errors": f"{_failures(enriched)} {_count(lake, enriched, FAILED)} in {enriched.table_name(FAILED)}",
        "pending": f"{_count(lake, enriched, PENDING)} in {enriched.table_name(PENDING)}",
    }


def _how(enriched: Enriched) -> str:
    kind = "a coroutine" if enriched.is_async else "a function in processes that can be killed"
    return f"{kind}, {counted(capacity_of(enriched), 'call')} at a time"


def _order(enriched: Enriched) -> str:
    if enriched.order == "arrival":
        return "that of the log: a row that waits holds back those behind it"
    return "as answers come: a row that waits holds back none"


def _failures(enriched: Enriched) -> str:
    ends = {"side": "go to the side output 'failed'", "null": "come with nulls", "default": "come with defaults"}
    attempts = counted(enriched.retries + 1, "attempt")
    return f"after {attempts} of at most {enriched.timeout} each they {ends[enriched.on_failure]}."


def _count(lake: Lake, enriched: Enriched, suffix: str) -> str:
    table = delta.open_table(lake.table(enriched, suffix))
    return counted(0 if table is None else table.count(), "row")


def _position(lake: Lake, enriched: Enriched) -> str:
    newest, at = head(lake, enriched.of), Reached.of(delta.open_table(lake.table(enriched)))
    assert newest is not None
    within = f" and {counted(at.place.row, 'row')} of the next" if at.place.row else ""
    return f"batch {at.place.through:,}{within} of {newest.number:,}; never built anew"


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
        raise pinned.nothing_yet(lake, "asked for")
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
