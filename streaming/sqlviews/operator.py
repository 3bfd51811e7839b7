"""SQL views as an operator: what they are read as, what is current of them, and their law."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import BATCH, COPY, DAY, REASON, SIGN, NoVersionError
from streaming.changes import ChangePosition, Look, LookAtSigned, look_at
from streaming.declare import Stream, View
from streaming.lake import Lake
from streaming.operators import (
    Coming,
    Effect,
    Finding,
    Law,
    LogAtVersion,
    OperatorRuntime,
    PinnedTables,
    SteppedRuntime,
    built_anew,
    require_table,
    runtime_of,
)
from streaming.sources import UnitTable
from streaming.spark import Analysis
from streaming.sqlviews.positions import Position
from streaming.sqlviews.relations import relations_of
from streaming.sqlviews.steps import MOST_TOUCHED, NamedRows, SqlViewSteps, rows_standing
from streaming.tables import delta


@runtime_of.register
def _(operator: View, lake: Lake) -> OperatorRuntime:
    return SqlViewRuntime(operator, lake)


class _ViewAnalysis(Analysis[View]):
    """An SQL view over its logs, as Spark sees it."""

    @cached_property
    def rows(self) -> DataFrame:
        """No row of the result."""
        with NamedRows(self.spark) as frames:
            names = {
                stream.name: frames.add(self.inputs[stream.name].select(*(f"`{name}`" for name in stream.columns)))
                for stream in self.of.follows
            }
            names |= {
                table.name: frames.add(self.spark.createDataFrame([], table.schema)) for table in self.of.external
            }
            return frames.query(self.of.query.text(names.__getitem__))


class SqlViewRuntime(SteppedRuntime[View, SqlViewSteps]):
    """An SQL view runs in steps, each of which computes the keys anew that changed rows touch."""

    def analyse(self, spark: SparkSession, columns: Mapping[str, str]) -> None:
        # What operators have published may not be there yet; the first step analyses it.
        if not self.operator.reads_current and all(table.types for table in self.operator.external):
            _ = _ViewAnalysis.once(spark, self.operator, columns).rows.schema

    def unit_table(self, output: str = "") -> UnitTable:
        raise self._would_follow("rows of an SQL view")

    @property
    def readable(self) -> Mapping[str, Callable[[SparkSession], DataFrame]]:
        return {"current": self._current, "signed": self._signed}

    def first_at(self, spark: SparkSession, version: int) -> DataFrame:
        signed = delta.read(spark, self.lake.table(self.operator), version)
        return rows_standing(signed, self.operator).select(*self._columns, DAY, REASON)

    def why_all(self, stream: Stream) -> str:
        return "computes rows of any time anew when others of their key change"

    def described(self, analysis: Mapping[str, Any]) -> dict[str, str]:
        view = self.operator
        of = ", ".join(view.query.relations)
        computed = f"all of it, whenever rows of {of} change: it has no key"
        if view.query.key:
            keys = f"for the keys ({', '.join(view.query.key)}) that changed rows of {of} may touch"
            computed = f"{keys}; all of it where these are more than {MOST_TOUCHED:.0%} of its rows"
        return {
            "results": "the rows of the query over what stands; nothing is late",
            "computed": computed,
            "reads": self._near,
        }

    @property
    def _near(self) -> str:
        """The streams of which files are left out by their times, in words; "" where there are none."""
        query, types = self.operator.query, {stream.name: stream.types for stream in self.operator.follows}
        times = {each.name: each.time for each in relations_of(self.lake, self.operator)[0]}
        near = query.distances(lambda relation, name: types.get(relation, {}).get(name) == "timestamp")
        columns = {(query.places[each.place], each.column) for each in near}
        words = [f"{name} by {time}" for name, time in times.items() if (name, time) in columns]
        return f"only files near in time to the rows they are joined with, of {' and '.join(words)}" if words else ""

    def position(self) -> str:
        table = delta.open_table(self.lake.table(self.operator))
        at = Position.of(self.operator, table)
        of_streams = [str(at.progress)] if at.progress.through else []
        others = relations_of(self.lake, self.operator)[1]
        of_others = [each.words(at[each.name]) for each in others if at[each.name] >= 0]
        return f"{' and '.join([*of_streams, *of_others])}{built_anew(at.progress.generation)}"

    def effects(self, spark: SparkSession, coming: Coming) -> Sequence[Effect]:
        # Where it reads only what is current of operators, it follows these.
        is_read = coming.stream in self.operator.follows
        effect = SqlViewSteps(spark, self.lake, self.operator).effect(coming) if is_read else None
        return () if effect is None else (effect,)

    def laws(
        self, spark: SparkSession, pinned: PinnedTables[View], logs: Mapping[str, LogAtVersion]
    ) -> Iterator[Finding]:
        view = self.operator
        if pinned.versions[""] == delta.BEFORE:
            raise pinned.nothing_yet(self.lake, "followed")
        table = delta.opened(self.lake.table(view), pinned.versions[""])
        at = Position.of(view, table)
        streams, others = relations_of(self.lake, view)
        with NamedRows(spark) as frames:
            names = {
                each.name: frames.add(each.standing_of(logs[each.name].rows.where(F.col(BATCH) <= at[each.name])))
                for each in streams
            }
            try:
                names |= {each.name: frames.add(each.now(spark, at[each.name])) for each in others}
            except NoVersionError as gone:
                yield Finding("view", view.name, 0, 0, f"not compared: {gone}")
                return
            expected = frames.query(view.query.text(names.__getitem__))
            stored = self.first_at(spark, pinned.versions[""])
            words = "rows: those of the query over what stands of its sources"
            told, wanted = stored.select(*self._columns), expected.select(*self._columns)
            yield Law("view", view.name, told, wanted, words, in_any_order=True).finding()

    @property
    def _columns(self) -> tuple[str, ...]:
        return tuple(f"`{name}`" for name in self.operator.columns)

    def _current(self, spark: SparkSession) -> DataFrame:
        # A cut of the logs has its version of the table, or is computed anew.
        require_table(self.lake, self.operator, "")
        rows, key = self.first_at(spark, self.versions()[""]), self.operator.query.key
        return rows.orderBy(*(f"`{name}`" for name in key)) if key else rows

    def _signed(self, spark: SparkSession) -> DataFrame:
        require_table(self.lake, self.operator, "")
        rows = delta.read(spark, self.lake.table(self.operator), self.versions()[""])
        return rows.orderBy(BATCH, *(f"`{name}`" for name in self.operator.query.key), SIGN)

    def _begun(self, spark: SparkSession) -> SqlViewSteps:
        return SqlViewSteps(spark, self.lake, self.operator)


class _LookAtView(LookAtSigned[View]):
    def days(self, spark: SparkSession, before: ChangePosition) -> frozenset[date] | None:
        # Rows without a day can only be told apart by all of them.
        return None

    def signed(self, before: ChangePosition, most: int) -> pa.Table | None:
        # One step takes back nothing that it adds.
        is_one_step = self.seen(before).step == before.step + 1
        return self._signed_since(before, most, COPY, *self.columns.names, are_net=is_one_step)


@look_at.register
def _(operator: View, lake: Lake) -> Look | None:
    return _LookAtView(lake, operator, rows_standing) if delta.exists(lake.table(operator)) else None
