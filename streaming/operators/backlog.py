"""The corrections that an operator waits for, told without Spark from what its tables and an older count of them say.

What is late is computed in Spark alone: `OperatorRuntime.plan`. So the days come from the newest plan, which somebody
has recorded as a `LateCount`; what is done comes from the table of corrections, and of batches newer than the count
only the newest with late rows is known, by its number. Nothing here reads commits or rows of the log, so that its cost
does not grow with them.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, Self

from streaming.base import counted
from streaming.declare import Operator, Stream
from streaming.lake import Lake
from streaming.log import head, newest_late
from streaming.operators.progress import Corrected, PendingDay, generation_of, revision_followed
from streaming.operators.runtime import OperatorRuntime, runtime_of
from streaming.sources import UnitIndex, changes_of
from streaming.tables import delta, storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOGS = "logs"
_EVERY_DAY = timedelta(days=4_000_000)
_NAMED = 5


@dataclass(frozen=True)
class LateCount:
    """The days that a plan found, each with its newest batch with late rows, when the log was `through` a batch.

    `log` and `corrections` are the ids of the tables then, `policy` what else it follows from.
    """

    log: str | None
    corrections: str | None
    policy: str
    through: int
    days: Mapping[date, int]

    @classmethod
    def of(cls, lake: Lake, operator: Operator, plan: Iterable[PendingDay], through: int | None) -> Self:
        """The `plan` of an operator, by which the log was followed `through` a batch, null for none."""
        days = {entry.day: entry.newest_batch for entry in plan}
        return cls(*_basis(lake, operator), -1 if through is None else through, days)

    def to_json(self) -> dict[str, Any]:
        """The count as JSON values."""
        days = {day.isoformat(): batch for day, batch in self.days.items()}
        return {**vars(self), "days": days}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """The count that `to_json` has written; `policy` is empty in one of an older release."""
        days = {date.fromisoformat(day): batch for day, batch in value["days"].items()}
        return cls(value["log"], value["corrections"], value.get("policy", ""), value["through"], days)

    def is_valid(self, lake: Lake, operator: Operator) -> bool:
        """True unless log, late policy or table of corrections was another one then."""
        log, corrections, policy = _basis(lake, operator)
        return (self.log, self.policy) == (log, policy) and self.corrections in (None, corrections)


@dataclass(frozen=True)
class Waiting:
    """The corrections that an operator needs.

    `days` are those that are known; it is empty where late rows came after the last count, and then whoever corrects
    them plans the days itself. `newest_batch` is the newest batch that brought one, of several logs the sum.
    """

    days: tuple[date, ...]
    newest_batch: int
    log: str

    @property
    def identity(self) -> str:
        """A text that is the same for the same backlog, and another one as soon as there is more to correct."""
        return f"{self.log[:8]}-{self.newest_batch}-{'+'.join(day.isoformat() for day in self.days) or 'planned'}"


class Backlog:
    """The backlog of an operator, by what was found out before.

    `count`: the newest count of its late rows. `settled`: the batch of each log, by stream, up to which its days were
    planned and corrected last. Null where there is none yet.
    """

    def __init__(
        self, lake: Lake, operator: Operator, count: LateCount | None, settled: Mapping[str, int] | None
    ) -> None:
        self._lake = lake
        self._operator = operator
        self._runtime: OperatorRuntime = runtime_of(operator, lake)
        self._count = count if count is not None and count.is_valid(lake, operator) else None
        self._settled = settled

    def waiting(self) -> Waiting | None:
        """The corrections that it needs, as far as late rows tell, or None when it needs none."""
        late = _newest_late(self._lake, self._operator) if self._operator.corrected else {}
        days = {} if self._count is None else self._count.days
        done = self._runtime.corrected_through(days)
        log = str(_table_id(self._lake.log(self._operator.reads[0])))
        if done is None:
            settled = self._settled or {}
            if all(batch <= settled.get(name, -1) for name, batch in late.items()):
                return None
            # Whichever log has more late rows, the sum is another one.
            return Waiting((), sum(late.values()), log)
        newest = max(late.values(), default=-1)
        if newest > (-1 if self._count is None else self._count.through):
            return Waiting((), newest, log)
        open_days = {day: batch for day, batch in days.items() if batch > done.get(day, -1)}
        return Waiting(tuple(sorted(open_days)), max(open_days.values()), log) if open_days else None

    def may_need_corrections(self) -> bool:
        """True if a plan could find a day: late rows wait, were never counted, or what a correction left open ended.

        False is certain; it costs no Spark to know.
        """
        operator, lake = self._operator, self._lake
        if self._runtime.corrected_through(()) is None:
            # A batch without late rows may move the joint clock past a window that has some.
            newest = settled_at(lake, operator)
            return bool(_newest_late(lake, operator)) and newest is not None and newest != self._settled
        if not operator.corrected or _table_id(lake.log(operator.reads[0])) is None:
            return False
        if self._count is None or self.waiting() is not None:
            return True
        reopened, heads = self._runtime.reopened(), settled_at(lake, operator) or {}
        done = self._runtime.corrected_through(reopened) or {}
        return any(max(heads.values(), default=-1) > done.get(day, -1) for day in reopened)


@dataclass(frozen=True)
class DueDays:
    """The `days` of an operator that are due to be corrected, by the newest plan, oldest first.

    `is_counted` is false where late rows came that no plan has seen, so that there may be more days.
    """

    days: tuple[date, ...]
    is_counted: bool

    @property
    def is_empty(self) -> bool:
        """True if nothing is due."""
        return not self.days and self.is_counted


@dataclass(frozen=True)
class UpstreamLag:
    """The lag of an operator behind the corrections of an `upstream` that it follows, however far away.

    `due`: the days of the upstream that are due. `revisions`: those of its changes that a stream on the way has not
    taken yet.
    """

    operator: str
    upstream: str
    folder: str
    due: DueDays
    revisions: int

    def __str__(self) -> str:
        """The lag in a sentence; empty where there is none."""
        days = ", ".join(map(str, self.due.days[:_NAMED]))
        more = f" and {len(self.due.days) - _NAMED:,} more" if len(self.due.days) > _NAMED else ""
        behind = []
        if self.due.days:
            behind.append(f"{counted(len(self.due.days), 'day')} due to be corrected ({days}{more})")
        if not self.due.is_counted:
            behind.append("late rows that no plan has counted yet")
        if self.revisions:
            behind.append(f"{counted(self.revisions, 'revision')} not followed yet")
        return f"{self.operator} follows {self.upstream}, which has {', '.join(behind)}" if behind else ""


def plan_corrections(spark: SparkSession, lake: Lake, operator: Operator) -> list[PendingDay]:
    """The days of an operator that need a correction; they are written down, so that `due_days` knows them."""
    newest = settled_at(lake, operator)
    plan = runtime_of(operator, lake).plan(spark)
    if newest is not None and operator.corrected and lake.cut is None:
        count = LateCount.of(lake, operator, plan, max(newest.values()))
        text = json.dumps({**count.to_json(), _LOGS: newest})
        storage.replace_bytes(lake.plan_of_corrections(operator.folder, operator.name), text.encode(), uuid.uuid4().hex)
    return plan


def due_days(lake: Lake, operator: Operator) -> DueDays:
    """The days of an operator that need a correction, by the newest plan that was written down; starts no Spark."""
    late = _newest_late(lake, operator) if operator.corrected else {}
    told = storage.read_json(lake.plan_of_corrections(operator.folder, operator.name))
    count = None if told is None else LateCount.from_json(told)
    if told is None or count is None or not count.is_valid(lake, operator):
        return DueDays((), is_counted=not late)
    logs, table = told[_LOGS], delta.open_table(lake.corrections(operator))
    through = {day: Corrected.of(operator, day, table).through for day in count.days}
    due = (day for day, done in through.items() if any(done.get(name, -1) < batch for name, batch in logs.items()))
    return DueDays(tuple(sorted(due)), all(batch <= logs.get(name, -1) for name, batch in late.items()))


def followed_upstream(operators: Iterable[Operator]) -> dict[Operator, timedelta]:
    """The operators of which these follow what is current, however far away, and how far windows reach on the way."""
    found: dict[Operator, timedelta] = {}
    for operator in operators:
        # Of what may reach anywhere each day counts.
        reach = _EVERY_DAY if operator.reach is None else operator.reach
        upstream = [of for _, of in _followed(operator)]
        for of, further in (*((of, timedelta()) for of in upstream), *followed_upstream(upstream).items()):
            found[of] = max(found.get(of, timedelta()), reach + further)
    return found


def upstream_lags(lake: Lake, operator: Operator) -> Iterator[UpstreamLag]:
    """The lag of an operator behind each one of which it follows what is current, however far up; starts no Spark."""
    upstream = followed_upstream((operator,))
    links = dict.fromkeys(link for each in (operator, *upstream) for link in _followed(each))
    for of in upstream:
        behind = max(_revisions_behind(lake, reader, of) for reader, followed in links if followed == of)
        yield UpstreamLag(operator.name, of.name, of.folder, due_days(lake, of), behind)


def _followed(operator: Operator) -> Iterator[tuple[Stream | Operator, Operator]]:
    """The operators of which this one or its streams follow what is current, each with who follows it."""
    yield from ((operator, of) for of in operator.reads_current)
    for stream in operator.reads:
        if stream.source.takes_back:
            yield from ((stream, of) for of, _ in stream.source.follows)


def _revisions_behind(lake: Lake, reader: Stream | Operator, of: Operator) -> int:
    if isinstance(reader, Stream):
        newest = head(lake, reader)
        through = -1 if newest is None else reader.source.taken_through(newest.source)
    else:
        through = revision_followed(delta.open_table(lake.table(reader)), of)
    return len(UnitIndex(changes_of(of, lake)).since(through + 1))


def settled_at(lake: Lake, operator: Operator) -> dict[str, int] | None:
    """The newest batch of each log of the operator, by stream; None while one is empty."""
    newest = {stream.name: head(lake, stream) for stream in operator.reads}
    numbers = {name: batch.number for name, batch in newest.items() if batch is not None}
    return numbers if len(numbers) == len(newest) else None


def _newest_late(lake: Lake, operator: Operator) -> dict[str, int]:
    """The newest batch that brought late rows, of each log that has some, by stream; reads no commit."""
    logs = {stream.name: delta.open_table(lake.log(stream)) for stream in operator.reads}
    late = {name: newest_late(log, operator.name) for name, log in logs.items() if log is not None}
    return {name: batch for name, batch in late.items() if batch is not None}


def _basis(lake: Lake, operator: Operator) -> tuple[str | None, str | None, str]:
    """Whatever a count follows from: ids of log and corrections, and the late policy and generation in words."""
    policy = f"{operator.late_policy} {operator.allowed_lateness}"
    generation = generation_of(delta.open_table(lake.table(operator)))
    log, corrections = _table_id(lake.log(operator.reads[0])), _table_id(lake.corrections(operator))
    return log, corrections, f"{policy} {generation}"


def _table_id(uri: str) -> str | None:
    table = delta.open_table(uri)
    return None if table is None else str(table.metadata().id)
