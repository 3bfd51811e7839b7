"""Which days wait for a correction, told without Spark from what the tables and the last count already say.

Windows are computed in Spark alone. So the days come from the newest count of late pairs (an asset event), what is
done comes from the table of corrections, and of batches newer than the count only the newest with late pairs is known,
by its number. Nothing here reads commits or rows of the log, so that its cost does not grow with them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from typing import Any

import dagster as dg

from platform_assets.keys import late_key
from streaming import Lake, Pipeline, Windowed
from streaming.declare import CORRECTIONS, Operator
from streaming.log import head, newest_late
from streaming.operators import PendingDay, Progress, generation_of, open_side
from streaming.tables import delta
from streaming.views import corrected_through, ended_since

_LATE = "backlog"
_SETTLED = "settled_through"
_LOOKED_BACK = 20


@dataclass(frozen=True)
class Waiting:
    """A view that needs corrections.

    `days` are those that are known to; it is empty where late pairs came after the last count, and then the run
    that corrects them plans the days itself. `newest_batch` is the newest batch that brought one.
    """

    days: tuple[date, ...]
    newest_batch: int
    log: str

    @property
    def identity(self) -> str:
        """A text that is the same for the same backlog, and another one as soon as there is more to correct."""
        return f"{self.log[:8]}-{self.newest_batch}-{'+'.join(day.isoformat() for day in self.days) or 'planned'}"


def backlog_metadata(lake: Lake, view: Windowed, backlog: Iterable[PendingDay], through: int | None) -> dict[str, Any]:
    """A count of late pairs as metadata, in the words that `waiting` reads; `through` is the newest batch counted."""
    return {
        _LATE: {
            "log": _table_id(lake.log(view.of)),
            "corrections": _table_id(lake.corrections(view)),
            "policy": _policy(lake, view),
            "through": -1 if through is None else through,
            "days": {entry.day.isoformat(): entry.newest_batch for entry in backlog},
        }
    }


def backlog_as_counted(instance: dg.DagsterInstance, operator: Operator) -> dict[str, Any]:
    """The newest count of late pairs as metadata, for an event that counts none; nothing where there is no count."""
    counted = _newest_count(instance, operator)
    return {} if counted is None else {_LATE: counted}


def settled_now(lake: Lake, operator: Operator) -> dict[str, Any]:
    """That every late pair up to the newest batches is corrected, as metadata; nothing while a log is empty.

    The batch of each log by stream, in the words that `settled_through` reads.
    """
    newest = {stream.name: head(lake, stream) for stream in operator.reads}
    numbers = {name: batch.number for name, batch in newest.items() if batch is not None}
    return {_SETTLED: dg.MetadataValue.json(numbers)} if len(numbers) == len(newest) else {}


def settled_through(instance: dg.DagsterInstance, pipeline: Pipeline) -> dict[str, int] | None:
    """The newest batch of each log, by stream, up to which everything is known to be corrected; None where it is not.

    A log that nothing corrected reads is not among them. A stream that runs brings late pairs all the time, so that its
    newest batch is hardly ever settled.
    """
    through: dict[str, int] = {}
    for operator in pipeline.backfilled:
        settled = _settled(instance, operator)
        if settled is None:
            return None
        through |= {name: min(batch, through.get(name, batch)) for name, batch in settled.items()}
    return through


def waiting(instance: dg.DagsterInstance, lake: Lake, operator: Operator) -> Waiting | None:
    """The corrections that the operator needs, as far as late pairs tell, or None when it needs none."""
    return _of_view(instance, lake, operator) if isinstance(operator, Windowed) else _of_logs(instance, lake, operator)


def _of_view(instance: dg.DagsterInstance, lake: Lake, view: Windowed) -> Waiting | None:
    log = delta.open_table(lake.log(view.of)) if view.corrected else None
    if log is None:
        return None
    identity = str(log.metadata().id)
    counted = _valid_count(instance, lake, view, identity) or {"through": -1, "days": {}}
    late = newest_late(log, view.name)
    if late is not None and late > counted["through"]:
        return Waiting((), late, identity)
    days = {date.fromisoformat(day): batch for day, batch in counted["days"].items()}
    done = corrected_through(lake, view, days)
    open_days = {day: batch for day, batch in days.items() if batch > done.get(day, -1)}
    return Waiting(tuple(sorted(open_days)), max(open_days.values()), identity) if open_days else None


def _of_logs(instance: dg.DagsterInstance, lake: Lake, operator: Operator) -> Waiting | None:
    """The backlog of an operator over several logs, of which no days are known: whoever corrects them plans them."""
    late = _newest_late(lake, operator)
    settled = _settled(instance, operator) or {}
    if all(batch <= settled.get(name, -1) for name, batch in late.items()):
        return None
    # Whichever log has more late pairs, the sum is another one.
    return Waiting((), sum(late.values()), str(_table_id(lake.log(operator.reads[0]))))


def may_need_corrections(instance: dg.DagsterInstance, lake: Lake, operator: Operator) -> bool:
    """True if the planner could find a day: late pairs wait, were never counted, or a session in a correction ended.

    False is certain; it costs no Spark to know.
    """
    if not isinstance(operator, Windowed):
        # A batch without late rows may move the joint clock past a window that has some.
        newest = settled_now(lake, operator).get(_SETTLED)
        return (
            bool(_newest_late(lake, operator)) and newest is not None and newest.value != _settled(instance, operator)
        )
    log = _table_id(lake.log(operator.of)) if operator.corrected else None
    if log is None:
        return False
    if _valid_count(instance, lake, operator, log) is None or waiting(instance, lake, operator) is not None:
        return True
    newest = Progress.at_heads(lake, operator)
    ended = ended_since(operator, newest, open_side(lake, operator, CORRECTIONS))
    done = corrected_through(lake, operator, ended)
    return any(newest.batch > done.get(day, -1) for day in ended)


def _newest_late(lake: Lake, operator: Operator) -> dict[str, int]:
    """The newest batch that brought late pairs, of each log that has some, by stream; reads no commit."""
    logs = {stream.name: delta.open_table(lake.log(stream)) for stream in operator.reads}
    late = {name: newest_late(log, operator.name) for name, log in logs.items() if log is not None}
    return {name: batch for name, batch in late.items() if batch is not None}


def _settled(instance: dg.DagsterInstance, operator: Operator) -> dict[str, int] | None:
    """The batch of each log up to which the days of an operator were planned and corrected last, by stream."""
    records = instance.fetch_observations(late_key(operator), limit=_LOOKED_BACK).records
    events = (record.event_log_entry.asset_observation for record in records)
    positions = (event.metadata[_SETTLED].value for event in events if event is not None and _SETTLED in event.metadata)
    return next((value for value in positions if isinstance(value, dict)), None)


def _valid_count(instance: dg.DagsterInstance, lake: Lake, view: Windowed, log: str) -> dict[str, Any] | None:
    """The newest count, unless log, late policy or table of corrections was another one then."""
    counted = _newest_count(instance, view)
    if counted is None or counted["log"] != log or counted.get("policy") != _policy(lake, view):
        return None
    corrections = counted["corrections"]
    return counted if corrections is None or corrections == _table_id(lake.corrections(view)) else None


def _newest_count(instance: dg.DagsterInstance, view: Operator) -> dict[str, Any] | None:
    """Drains materialize the count, corrections observe it."""
    records = [
        *instance.fetch_materializations(late_key(view), limit=1).records,
        *instance.fetch_observations(late_key(view), limit=1).records,
    ]
    for record in sorted(records, key=lambda record: record.storage_id, reverse=True):
        event = record.asset_materialization or record.event_log_entry.asset_observation
        entry = None if event is None else event.metadata.get(_LATE)
        if isinstance(entry, dg.JsonMetadataValue) and isinstance(entry.value, dict):
            return entry.value
    return None


def _policy(lake: Lake, view: Windowed) -> str:
    """The late policy and the generation of the view, from which a count of late pairs follows besides the log."""
    return f"{view.late} {view.allowed_lateness} {generation_of(delta.open_table(lake.first(view)))}"


def _table_id(uri: str) -> str | None:
    table = delta.open_table(uri)
    return None if table is None else str(table.metadata().id)
