"""Examines a pipeline in its lake; reads tables and small files, and starts no Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime

from streaming.base import utc_now
from streaming.declare import Pipeline
from streaming.lake import Lake
from streaming.operations.doctor.ailment import Ailment
from streaming.operations.doctor.checkpoints import examine_checkpoint
from streaming.operations.doctor.logs import HISTORY_GONE, examine_log
from streaming.operations.doctor.operators import examine_delivery, examine_operator
from streaming.operations.doctor.permissions import FORBIDDEN, examine_permissions
from streaming.operations.doctor.processes import examine_erasures, examine_lease, examine_savepoints
from streaming.operations.doctor.tables import examine_tables
from streaming.service import take_lease


def examine(lake: Lake, pipeline: Pipeline, now: Callable[[], datetime] = utc_now) -> list[Ailment]:
    """Everything about a pipeline's tables, checkpoints and small files that is not as it should be.

    The pipeline may run. Whether numbers are right is for the audit, how the stream is for `tidemark status`.
    """
    return list(_examine(lake, pipeline, now()))


def heal(lake: Lake, pipeline: Pipeline, now: Callable[[], datetime] = utc_now) -> tuple[list[Ailment], list[Ailment]]:
    """Heal what can be healed without a decision; returns what was, and what is left.

    Raises:
        LeaseError: the pipeline runs.
    """
    # Before the lease is taken, which replaces the record of a holder that is gone.
    ailments = examine(lake, pipeline, now)
    if any(ailment.kind == FORBIDDEN for ailment in ailments):
        return [], ailments
    with take_lease(lake, pipeline, "doctor"):
        for ailment in ailments:
            if ailment.heal is not None:
                ailment.heal()
    left = examine(lake, pipeline, now)
    return [ailment for ailment in ailments if ailment.heal is not None and ailment not in left], left


def _examine(lake: Lake, pipeline: Pipeline, now: datetime) -> Iterator[Ailment]:
    forbidden = list(examine_permissions(lake, pipeline))
    yield from forbidden
    if forbidden:
        return
    yield from examine_lease(lake, pipeline)
    unreadable: set[str] = set()
    for ailment in examine_tables(lake, pipeline, now):
        if ailment.kind == "table unreadable":
            unreadable.add(ailment.subject)
        yield ailment
    # What cannot be opened is named once, and nothing else is asked of it.
    for stream in pipeline.streams:
        if lake.log(stream) not in unreadable and lake.batches(stream) not in unreadable:
            for ailment in examine_log(lake, stream, now):
                if ailment.kind == HISTORY_GONE:
                    unreadable.add(lake.log(stream))
                yield ailment
            yield from examine_checkpoint(lake, stream)
    for operator in pipeline.operators:
        uris = {lake.table(operator, spec.suffix) for spec in operator.tables}
        if not unreadable & {*uris, *(lake.log(stream) for stream in operator.reads)}:
            yield from examine_operator(lake, operator)
    for delivery in pipeline.deliveries:
        if not unreadable:
            yield from examine_delivery(lake, pipeline, delivery)
    yield from examine_savepoints(lake, pipeline)
    yield from examine_erasures(lake, pipeline)
