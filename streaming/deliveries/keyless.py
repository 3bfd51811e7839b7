"""Results that change and that no columns need to identify: what identifies one is a text of its own."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from datetime import datetime
from typing import Generic, TypeVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as SortedBy
from pyspark.sql import functions as F

from streaming.base import DAY, optional_micros
from streaming.declare import CORRECTIONS, Delivery, Operator
from streaming.deliveries.changing import Changing, Look, chosen
from streaming.deliveries.computed import may_fail
from streaming.deliveries.seen import NOTHING_CLOSED, Seen
from streaming.lake import Lake
from streaming.operators import PinnedTables, generation_of
from streaming.sinks import RESULT_ID
from streaming.spark import exact_json, guarded
from streaming.tables import delta

_PLACE, _OWN = "_place", "_own"
Corrects = TypeVar("Corrects", bound=Operator)


class Keyless(Changing):
    """No columns of a result need to identify it; a delete tells what was told before, so that it has any key."""

    def __init__(self, lake: Lake, delivery: Delivery, operator: Operator, columns: tuple[str, ...]) -> None:
        super().__init__(lake, delivery, operator)
        self.identity = (RESULT_ID,)
        self.columns = self.kept = (*columns, RESULT_ID)

    @property
    def key(self) -> tuple[str, ...]:
        """The delivery's own key as SQL over a result; empty where it has none."""
        names = [name for name in self.delivery.identity if name != RESULT_ID]
        return tuple(self.delivery.selected[name] for name in names)

    def identified(self, current: DataFrame, own: list[Column], order: list[Column]) -> DataFrame:
        """With the text that identifies each: that of its key, of which the last in `order` stands, or of its `own`."""
        rows = chosen(current, self.delivery)
        if not self.key:
            return rows.withColumn(RESULT_ID, _text(own))
        of_key = SortedBy.partitionBy(RESULT_ID).orderBy(*(column.desc() for column in order))
        by_key = _text([F.expr(sql) for sql in self.key])
        if any(may_fail(sql, self.delivery) for sql in self.key):
            # Results of which the key cannot be computed share none, as each is a dead letter of its own.
            by_key = F.coalesce(guarded(by_key, DAY)["value"], _OWN)
        with_ids = rows.withColumn(_OWN, _text(own)).withColumn(RESULT_ID, by_key).drop(_OWN)
        return with_ids.withColumn(_PLACE, F.row_number().over(of_key)).where(F.col(_PLACE) == 1).drop(_PLACE)


class LookAtCorrected(Look, Generic[Corrects]):
    """First results and corrections of an operator, as its tables had them at one moment."""

    def __init__(self, of: Keyless, pinned: PinnedTables[Corrects]) -> None:
        self._of = of
        self._operator = pinned.operator
        self._lake = of.lake
        self._version, self._corrections = pinned.versions[""], pinned.versions[CORRECTIONS]
        self._first = delta.open_table(of.lake.table(pinned.operator), self._version)

    @property
    @abstractmethod
    def _watermark(self) -> datetime | None:
        """That of the operator's newest step."""

    def seen(self, before: Seen) -> Seen:
        closed = optional_micros(self._watermark)
        return replace(
            Seen(),
            revision=before.revision,
            closed=NOTHING_CLOSED if closed is None else closed,
            corrections=self._corrections,
            of_generation=generation_of(self._first),
        )

    def _anew(self, before: Seen) -> bool:
        """Whether any result may have changed, because nothing was told yet or the operator was built anew."""
        anew = before.revision < 0 or before.closed == NOTHING_CLOSED or before.again > 0
        return anew or before.of_generation != generation_of(self._first)


def _text(of: list[Column]) -> Column:
    parts = F.struct(*(part.alias(f"_{place}") for place, part in enumerate(of)))
    return F.sha2(exact_json(parts), 256)
