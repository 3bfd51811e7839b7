"""Rebuild an operator's tables from the log, beside those that are read and while the pipeline runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from datetime import date, datetime
from functools import partial
from threading import Event

from pyspark.sql import SparkSession

from streaming.base import ChangedDeclaration, DeclarationError, LeaseError, OperatorError, utc_now
from streaming.changes import note_together, publish
from streaming.declare import Operator, Pipeline
from streaming.lake import OF_KEYS, OF_STREAMS, Lake
from streaming.log import head, is_dropping, require_log, widen_log
from streaming.operators import (
    OperatorRuntime,
    SteppedRuntime,
    check_can_rebuild,
    generation_of,
    has_caught_up,
    make_ready,
    next_of,
    note_caught_up,
    ready_generation,
    remove_next,
    runtime_of,
    switch,
)
from streaming.service import (
    Holder,
    JobCounts,
    Lease,
    LeasePlace,
    Observer,
    Run,
    explained,
    holder_of,
    lineage_of,
    rebuild_of,
    rewriter_of,
    take_lease,
)
from streaming.tables import delta

_LOOK_EVERY = 0.5


@dataclass(frozen=True)
class Rebuilt:
    """The outcome of a rebuild: where the operator's own table is, its rows, and rows corrected per day."""

    uri: str
    rows: int
    corrected: dict[date, int]


class RebuildListener:
    """Is told how a rebuild gets on; what is not overridden is not shown."""

    def followed(self, through: int, newest: int) -> None:
        """The batches up to `through` are followed, of those up to `newest`."""

    def corrected(self, day: date, rows: int) -> None:
        """A day is corrected, in so many rows."""

    def waits(self, holder: str) -> None:
        """All is built, and `holder`, which runs the pipeline, is to put it in place."""


def rebuild(
    spark: SparkSession,
    lake: Lake,
    pipeline: Pipeline,
    operator: Operator,
    name: str | None = None,
    now: Callable[[], datetime] = utc_now,
    listener: RebuildListener | None = None,
) -> Rebuilt:
    """Build the tables of an operator anew from the log, with their corrections, beside the old ones.

    Once they have caught up they take the place of the old ones, in one commit; until then the old ones are read. The
    pipeline may run all the while: then its process puts them in place, within some ten seconds. With a `name` they
    stay beside the old ones, under it.

    Whatever kills it: running it again goes on where it was, and what is ready is put in place by the next run of the
    pipeline at the latest.

    Raises:
        LeaseError: another process builds the same.
        LogError: nothing has been ingested yet.
        DeclarationError: the `name` is taken.
        OperatorError: what the operator holds does not follow from the log, or nothing can be computed yet, because no
            batch says how far its control stream was; or its logs have lost days by their retention, so that what is
            published of these would be lost.
    """
    if operator.never_rebuilt:
        raise OperatorError(f"{operator.name!r} cannot be built anew: {operator.never_rebuilt}. Nothing was changed.")
    if name is None:
        check_can_rebuild(lake, operator)
    listener = listener or RebuildListener()
    beside = next_of(operator) if name is None else _renamed(lake, pipeline, operator, name)
    corrected: dict[date, int] = {}
    of = operator if name is None else beside
    with built_beside(lake, beside), lineage_of(pipeline, partial(rebuild_of, lake, pipeline, of), now) as told:
        if name is None:
            # From here on who drops days sees that the operator is built anew.
            _check_no_drop(lake, pipeline, operator)
            check_can_rebuild(lake, operator)
        if name is not None or not _is_ready(lake, operator):
            for stream in operator.reads:
                if stream in operator.pins and head(lake, stream) is None:
                    # Nobody has set a rule yet.
                    continue
                require_log(lake, stream)
                widen_log(spark, lake, stream)
            if name is None:
                _catch_up(spark, lake, operator, now, listener)
            # The second round follows what the log got during the first.
            for _ in range(2):
                corrected |= _follow(spark, runtime_of(beside, lake), now, listener)
        if not delta.exists(lake.table(beside)):
            raise OperatorError(
                f"there is nothing yet that view {operator.name!r} could be built from; run `tidemark run "
                f"{pipeline.name}` first."
            )
        if name is None:
            make_ready(lake, operator)
            put_in_place(spark, lake, pipeline, operator, now, listener)
        built = delta.open_table(lake.table(of))
        assert built is not None
        rows = built.count()
        told[of.name] = JobCounts(rows)
    return Rebuilt(lake.table(of), rows, corrected)


def rebuild_held(spark: SparkSession, lake: Lake, operator: Operator, now: Callable[[], datetime]) -> None:
    """Build the tables of an operator anew and put them in place, by whoever holds the pipeline's lease.

    What was being built beside them is thrown away before.

    Raises:
        LeaseError: another process builds the same.
        OperatorError: what is published cannot all be computed again, as its logs have lost days by their retention.
    """
    check_can_rebuild(lake, operator)
    beside = next_of(operator)
    with built_beside(lake, beside):
        remove_next(lake, operator)
        _catch_up(spark, lake, operator, now, RebuildListener())
        _follow(spark, runtime_of(beside, lake), now, RebuildListener())
        if delta.exists(lake.table(beside)):
            make_ready(lake, operator)
            switch(spark, lake, operator)


def built_beside(lake: Lake, beside: Operator) -> AbstractContextManager[Lease]:
    """The right to write tables beside those of an operator, whoever runs its pipeline.

    Raises:
        LeaseError: another process builds the same.
    """
    return take_lease(lake, _place_of(beside))


def builder_of(lake: Lake, beside: Operator) -> Holder | None:
    """Who builds tables beside those of an operator now, also before there is any; None for nobody."""
    return holder_of(lake, _place_of(beside))


def _place_of(beside: Operator) -> LeasePlace:
    return LeasePlace(f"{beside.folder}/{beside.name}")


def _check_no_drop(lake: Lake, pipeline: Pipeline, operator: Operator) -> None:
    """Refuse to begin while somebody drops days of a log that the operator reads, who has looked for rebuilds before.

    Raises:
        OperatorError: so it is.
    """
    # In this order: who has ended by then has dropped the days, or left them all there.
    if rewriter_of(lake, pipeline) is None:
        return
    going = [stream.name for stream in operator.reads if is_dropping(lake, stream)]
    if going:
        raise OperatorError(
            f"{operator.kind_name} {operator.name!r} cannot be built anew now: old days of {', '.join(going)} are "
            "being dropped by retention; run the command again once that has ended. Nothing was changed."
        )


def _is_ready(lake: Lake, operator: Operator) -> bool:
    """True if a rebuild that died had built all; what is left of any other kind is removed."""
    generation = ready_generation(lake, operator)
    try:
        runtime_of(next_of(operator), lake).check()
    except ChangedDeclaration:
        remove_next(lake, operator)
        return False
    if generation is not None and generation <= generation_of(delta.open_table(lake.table(operator))):
        remove_next(lake, operator)
        return False
    return generation is not None


def _renamed(lake: Lake, pipeline: Pipeline, operator: Operator, name: str) -> Operator:
    beside = operator.renamed(name)
    taken = {each.table_name(suffix) for each in pipeline.operators for suffix in ("", *each.reserved_suffixes)}
    wanted = {beside.table_name(suffix) for suffix in ("", *beside.reserved_suffixes)}
    if clash := sorted(wanted & {*taken, *OF_STREAMS, *OF_KEYS}):
        raise DeclarationError(
            f"{name!r} cannot be the name of what is built beside view {operator.name!r}: {clash[0]!r} is a table of "
            f"pipeline {pipeline.name!r} already; choose another name."
        )
    try:
        runtime_of(beside, lake).check()
    except ChangedDeclaration as changed:
        raise DeclarationError(
            f"there is a table {lake.table(beside)!r} of another declaration; remove it with `tidemark drop {name}`, "
            "or choose another name."
        ) from changed
    return beside


def _catch_up(
    spark: SparkSession,
    lake: Lake,
    operator: Operator,
    now: Callable[[], datetime],
    listener: RebuildListener,
) -> None:
    """Step what is built beside an operator's tables as far as these are, and note there where it was then.

    Rows that steps write later follow those that there were, so that a delivery can go on with them. A kind whose
    places are of the rows alone, such as the end of a window, needs no such note.
    """
    through = runtime_of(operator, lake).through()
    if has_caught_up(lake, operator) or any(number < 0 for number in through.values()):
        return
    runtime = runtime_of(next_of(operator), lake.as_of(through))
    if not isinstance(runtime, SteppedRuntime):
        return
    with explained(operator), closing(runtime):
        for step in runtime.steps(spark, now):
            step.run()
            listener.followed(step.last, through[operator.reads[0].name])
    note_caught_up(lake, operator)


def _follow(
    spark: SparkSession, runtime: OperatorRuntime, now: Callable[[], datetime], listener: RebuildListener
) -> dict[date, int]:
    """Step up to the newest batches, then correct what came late; returns the rows corrected per day."""
    operator, lake = runtime.operator, runtime.lake
    newest = head(lake, operator.reads[0])
    assert newest is not None
    with explained(operator):
        for step in runtime.steps(spark, now):
            step.run()
            listener.followed(step.last, newest.number)
        runtime.catch_up(spark, newest, now)
        days = [pending.day for pending in runtime.plan(spark)]
        return runtime.correct(spark, days, now, listener.corrected) if days else {}


def put_in_place(
    spark: SparkSession,
    lake: Lake,
    pipeline: Pipeline,
    operator: Operator,
    now: Callable[[], datetime],
    listener: RebuildListener,
) -> None:
    """Let what is ready beside an operator's tables take their place, and publish what is current by them.

    Only who holds the pipeline's lease writes its tables: the process that runs it, or this one.
    """
    while ready_generation(lake, operator) is not None:
        try:
            with take_lease(lake, pipeline):
                run = Run(spark, lake, pipeline, Observer(now))
                run.take_over(runtime_of(operator, lake))
        except LeaseError:
            listener.waits(str(holder_of(lake, pipeline)))
            Event().wait(_LOOK_EVERY)
    publish(spark, lake, operator)
    note_together(lake, pipeline)
