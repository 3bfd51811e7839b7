"""Erases a person: all rows with a value of one column leave a pipeline, its history, and what was computed of them.

1. Whoever erases holds the pipeline's lease, and what is under way is finished first: deliveries have delivered.
2. An erasure is begun in the table `erasures`, under a digest. What dies goes on from there when it is run again.
3. The archive of each log notes how many rows of which batch go: read = valid + rejected + erased.
4. Rows of enrichments, which follow from no log, go by batch and origin; then those of the logs, in one rewrite each.
5. All other operators that read such a log are built anew from it, as a new generation: so what aggregates several
   people is computed without the person. Or a view is left as published (`keep_numbers`), and the audit knows its days.
6. Deliveries go on with the new generation; of what is current they send what changed, deletes too, as long as it is
   known. Those of anything else are named: what their targets have, nobody here can take back.
7. Dead letters, what deliveries wrote down, and tables that nobody declares any more are rewritten by their columns.
8. Old versions go: files that no newest version needs, entries of the Delta logs, whose bounds may name a value.
9. Savepoints pin old versions, so they are dropped before, if that is asked for, or the erasure is refused.
10. The proof reads every file that is left; only then the erasure is done, and says what was removed of which table.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from streaming.base import BATCH, ORIGIN, ErasureError, RedeliveryError, utc_now
from streaming.changes import Publishing, note_together, publish
from streaming.declare import CHANGES, PENDING, Delivery, Operator, Pipeline, Stream
from streaming.deliveries import DeliveryRuntime
from streaming.lake import Lake, place_of_log
from streaming.log import archive_batches, note_erased, read_log
from streaming.operations.cuts import forget_recomputed
from streaming.operations.erasure.proof import prove, tables_of
from streaming.operations.erasure.record import COMMIT, Erasure, Removed, erasures
from streaming.operations.erasure.rows import (
    WITHOUT_ROWS,
    InLog,
    Person,
    affected,
    check_known,
    in_logs,
    of_rows,
    unread_rejected,
)
from streaming.operations.rebuild import built_beside, rebuild_held
from streaming.operations.savepoint import drop_savepoint, savepoints
from streaming.operators import counts_of, generation_of, next_of, remove_next, runtime_of, whole_since
from streaming.revisions import Revising
from streaming.service import Delivering, Observer, rewriting, take_lease
from streaming.tables import Split, clean_up, delta, numbers_of, storage, take_out, to_be_taken

_VACUUMS = ((0, False), (1, True))
"""Hours for which a file stays, and whether it goes also where no version has it.

Such a file may be of somebody who is about to commit it, such as maintenance; the proof reads what stays.
"""


@dataclass(frozen=True)
class Erased:
    """The outcome of an erasure.

    `told`: deliveries of what is current, whose targets have the changes. `to_tell`: deliveries whose targets have
    rows of the person that nothing takes back. `rebuilt`: operators that were computed without them.
    """

    erasure: Erasure
    rebuilt: tuple[str, ...]
    told: tuple[str, ...]
    to_tell: tuple[str, ...]


def erase(
    spark: SparkSession,
    lake: Lake,
    pipeline: Pipeline,
    person: Person,
    *,
    keep_numbers: bool = False,
    with_savepoints: bool = False,
    now: Callable[[], datetime] = utc_now,
    listener: Callable[[str], None] = lambda what: None,
) -> Erased:
    """Take all rows of a person out of a pipeline that does not run, and prove it; `listener` is told what is done.

    Whatever kills it, nothing is lost of anybody else, and running it again finishes it.

    Raises:
        ErasureError: no stream has the column, savepoints pin old versions, a target is away, or something is left.
        ChangedDeclaration: an operator is not the one that made its tables.
        LeaseError: the pipeline runs or is maintained, or an operator of it is being built anew.
    """
    check_known(pipeline, person)
    with ExitStack() as held:
        held.enter_context(take_lease(lake, pipeline, "erase"))
        held.enter_context(rewriting(lake, pipeline))
        pinning = _savepoints_to_drop(lake, pipeline, with_savepoints)
        _check_operators(lake, pipeline)
        _check_days(lake, pipeline, person, keep_numbers)
        unfinished = [_settled(lake, each) for each in erasures(lake) if each.is_unfinished_in(pipeline)]
        begun = next((each for each in unfinished if each.is_of(pipeline, person)), None)
        _check_delivered(spark, lake, pipeline, now, is_begun=begun is not None)
        # Only now: whatever is refused before leaves them there.
        for name in pinning:
            drop_savepoint(lake, pipeline, name)
        erasure = (begun or Erasure.begun(pipeline, person, now())).write(lake)
        listener("looking through the logs")
        for stream in pipeline.streams:
            if stream.revised and delta.exists(lake.log(stream)):
                # A process may have died between its two logs, and what came must be told of both.
                runtimes = [runtime_of(operator, lake) for operator in pipeline.operators_of(stream)]
                Revising(spark, lake, stream, counts_of(runtimes, stream)).follow(now())
        occurrences = in_logs(spark, lake, pipeline, person)
        erasure = _noted(spark, lake, pipeline, person, occurrences, erasure, keep_numbers).write(lake)
        for table, split in _theirs(spark, lake, pipeline, occurrences):
            listener(f"taking rows out of {table}")
            erasure = _taken_out(spark, lake, erasure, table, split)
        rebuilt = [each for each in affected(pipeline, erasure.streams) if each.name not in erasure.kept]
        for operator in rebuilt:
            if generation_of(delta.open_table(lake.table(operator))) < erasure.generations.get(operator.name, 0):
                listener(f"{operator.name} is computed anew")
                rebuild_held(spark, lake, operator, now)
        listener("telling deliveries")
        recipients, to_tell = _tell_deliveries(spark, lake, pipeline, erasure, person, rebuilt, now)
        for table in _others(spark, lake, pipeline, person, erasure):
            erasure = _taken_out(spark, lake, erasure, table, person.split())
        listener("removing history")
        # The versions that it names are among what goes.
        storage.remove(lake.manifest(pipeline))
        forget_recomputed(lake)
        for table in tables_of(lake, pipeline):
            erasure = _without_history(lake, erasure, table)
        # One that was taken meanwhile has copies of what was there then.
        for name in _savepoints_to_drop(lake, pipeline, with_savepoints):
            drop_savepoint(lake, pipeline, name)
        erasure = _proved(lake, pipeline, person, erasure, listener)
        for operator in pipeline.operators:
            publish(spark, lake, operator)
        note_together(lake, pipeline)
        erasure = replace(erasure, done_at=now()).write(lake)
    return Erased(erasure, tuple(each.name for each in rebuilt), recipients, to_tell)


def _savepoints_to_drop(lake: Lake, pipeline: Pipeline, with_savepoints: bool) -> list[str]:
    pinning = [each.name for each in savepoints(lake, pipeline)]
    if pinning and not with_savepoints:
        raise ErasureError(
            f"savepoints of pipeline {pipeline.name!r} keep old versions: {', '.join(pinning)}. Drop them with "
            f"`tidemark savepoint {pipeline.name} NAME --drop`, or let this command do it with --with-savepoints, "
            "and run it again."
        )
    return pinning


def _check_operators(lake: Lake, pipeline: Pipeline) -> None:
    for operator in pipeline.operators:
        runtime = runtime_of(operator, lake)
        runtime.check()
        pending = delta.row_count(delta.open_table(lake.table(operator, PENDING)))
        if operator.never_rebuilt and runtime.waiting() > pending:
            raise ErasureError(
                f"{operator.kind_name} {operator.name!r} has not taken all rows of its log, and counts those "
                f"of a batch, which an erasure would change; run `tidemark run {pipeline.name}` first. Nothing was "
                "erased."
            )


def _noted(
    spark: SparkSession,
    lake: Lake,
    pipeline: Pipeline,
    person: Person,
    occurrences: list[InLog],
    erasure: Erasure,
    keep_numbers: bool,
) -> Erasure:
    """Note what is about to be taken out where the audit looks for it, and in the record."""
    for each in occurrences:
        archive_batches(lake, each.stream)
        if each.by_batch:
            note_erased(lake, each.stream, _note_of(erasure, each.stream), each.by_batch)
    streams = dict.fromkeys([*erasure.streams, *(each.stream.name for each in occurrences if each.valid)])
    kept, generations = dict(erasure.kept), dict(erasure.generations)
    for operator in affected(pipeline, streams):
        table = delta.open_table(lake.table(operator))
        newly = any(each.valid and each.stream in operator.reads for each in occurrences)
        if table is None or not newly:
            continue
        runtime = runtime_of(operator, lake)
        if keep_numbers and runtime.outlives(person.column):
            of_person = (each for each in occurrences if each.stream in operator.reads)
            days = runtime.keep_without(
                {each.stream.name: each.split.taken(read_log(spark, lake, each.stream)) for each in of_person}
            )
            kept[operator.name] = sorted({*kept.get(operator.name, []), *(day.isoformat() for day in days)})
        elif operator.name not in kept:
            generations[operator.name] = generation_of(table) + 1
    return replace(erasure, streams=tuple(streams), kept=kept, generations=generations)


def _note_of(erasure: Erasure, stream: Stream) -> str:
    """The id under which the archive of a log has what goes now, beside what this erasure took before it died."""
    taken = erasure.tables.get(place_of_log(stream), Removed()).rows
    return f"{erasure.id}@{taken}" if taken else erasure.id


def _theirs(
    spark: SparkSession, lake: Lake, pipeline: Pipeline, occurrences: list[InLog]
) -> Iterator[tuple[str, Split]]:
    """The tables of enrichments, then the logs that their rows came from, with what is to be taken out of each."""
    for each in occurrences:
        for operator in pipeline.operators:
            if operator.never_rebuilt and operator.reads[0] == each.stream and each.valid:
                keys = each.split.taken(read_log(spark, lake, each.stream)).select(BATCH, ORIGIN)
                yield from ((table, of_rows(keys)) for table in _tables(lake, operator))
        if each.by_batch or each.stream.key:
            if each.stream.revised and delta.exists(lake.standing(each.stream)):
                yield f"{each.stream.name}/standing", each.split
            yield place_of_log(each.stream), each.split


def _others(spark: SparkSession, lake: Lake, pipeline: Pipeline, person: Person, erasure: Erasure) -> Iterator[str]:
    """Tables that tell by their own columns: dead letters, changes, answers, and what nobody declares any more."""
    for operator in pipeline.operators:
        # A rebuild may run beside: what it has read of the log by now is not to come back.
        with built_beside(lake, next_of(operator)):
            remove_next(lake, operator)
    logs = {place_of_log(stream) for stream in pipeline.logs}
    logs |= {f"{stream.name}/standing" for stream in pipeline.streams if stream.revised}
    computed = {table for each in affected(pipeline, erasure.streams) for table in _tables(lake, each)}
    for table in tables_of(lake, pipeline):
        if table in logs | computed or table.rpartition("/")[2] in WITHOUT_ROWS:
            continue
        if person.is_told_by(delta.read(spark, lake.path(table))):
            yield table


def _tables(lake: Lake, operator: Operator) -> list[str]:
    """The tables of an operator that are there, by their places in the lake."""
    suffixes = ("", *operator.reserved_suffixes)
    there = [suffix for suffix in suffixes if delta.exists(lake.table(operator, suffix))]
    return [f"{operator.folder}/{operator.table_name(suffix)}" for suffix in there]


def _proved(
    lake: Lake, pipeline: Pipeline, person: Person, erasure: Erasure, listener: Callable[[str], None]
) -> Erasure:
    listener("looking through all files that are left")
    proof = prove(lake, pipeline, person)
    if proof.places:
        raise ErasureError(
            f"{person.column} is still found in {len(proof.places):,} files: {', '.join(proof.places[:5])}. What is "
            "erased so far stays erased. Run the command again, if files are of an attempt that died in an hour; if it "
            "names them again, rows that stay have the value in a column of another name, such as the key of the other "
            "side of a join: erase by that column, too; or these tables are not of this pipeline's declaration: remove "
            "them with `tidemark drop`, or report it as a defect."
        )
    checked = {"tables": proof.tables, "data files": proof.data_files, "log entries": proof.entries}
    return replace(erasure, checked=checked)


def _check_days(lake: Lake, pipeline: Pipeline, person: Person, keep_numbers: bool) -> None:
    """Refuse an erasure that would have to compute results again of which rows were dropped.

    Raises:
        ErasureError: with what can be done instead.
    """
    for operator in pipeline.operators:
        since, keeps = whole_since(lake, operator), runtime_of(operator, lake).outlives(person.column)
        if since is None or (keep_numbers and keeps):
            continue
        kept = ", or keep its numbers with --keep-numbers" if keeps else ""
        raise ErasureError(
            f"{operator.kind_name} {operator.name!r} has results of rows of days before {since}, which were dropped by "
            "the retention of what it reads, so they cannot be computed again without the person. Leave it out of the "
            f"pipeline's declaration and remove it with `tidemark drop {operator.name}`{kept}. Nothing was erased."
        )


def _check_delivered(
    spark: SparkSession, lake: Lake, pipeline: Pipeline, now: Callable[[], datetime], *, is_begun: bool
) -> None:
    """Deliver all there is: what is in the midst of being delivered is told by places that an erasure would move.

    Where the erasure `is_begun`, the pipeline may have run since it died, so it is looked at again. Deliveries of what
    was built anew by then are passed over: nothing was delivered of it, and they are told afterwards.

    Raises:
        ErasureError: a target is away, or a delivery waits for a decision.
    """
    delivering = Delivering(spark, lake, pipeline, Observer(now))
    ledgers = ((each, each.ledger.read()) for each in delivering.runtimes)
    begun = [
        each
        for each, ledger in ledgers
        if ledger is not None and not (is_begun and ledger.of_generation != each.outbox.generation())
    ]
    for runtime in begun:
        delivering.deliver_all(only=runtime.delivery.name)
    waits = {name: waiting.why for name, waiting in delivering.waiting.items()}
    waits |= {name: str(refused) for name, refused in delivering.paused.items()}
    if waits:
        named = "; ".join(f"{name}: {why.rstrip('.')}" for name, why in waits.items())
        raise ErasureError(
            f"deliveries of pipeline {pipeline.name!r} have not delivered everything, and what they have begun must "
            f"not change: {named}. Bring the targets back, or decide with `tidemark redeliver {pipeline.name} NAME`; "
            "then run this again. Nothing was erased."
        )


def _tell_deliveries(
    spark: SparkSession,
    lake: Lake,
    pipeline: Pipeline,
    erasure: Erasure,
    person: Person,
    rebuilt: Sequence[Operator],
    now: Callable[[], datetime],
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Let deliveries go on over tables that lost rows; returns those whose targets were told, and those to be told.

    Of what is current the differences are delivered as upserts and deletes, before the lake forgets what they were.

    Raises:
        ErasureError: a target is away.
    """
    logs = {
        table.removesuffix("/log").removesuffix("/changes") for table, removed in erasure.tables.items() if removed.rows
    }
    touched = {*erasure.streams, *erasure.generations, *logs}
    told: list[DeliveryRuntime] = []
    to_tell = []
    for delivery in pipeline.deliveries:
        runtime = DeliveryRuntime(delivery, lake, now, pipeline.name)
        if runtime.ledger.read() is None or not _sources(delivery) & touched:
            continue
        if delivery.what != "current":
            # Where nobody can tell what follows it stays paused, and says so.
            with suppress(RedeliveryError):
                runtime.begin_anew(again=False)
            to_tell.append(delivery.name)
            continue
        runtime.begin_anew(again=False)
        _deliver(spark, lake, pipeline, delivery, now)
        changes = lake.table(delivery, CHANGES)
        if delta.exists(changes):
            take_out(spark, changes, person.split(), {"erasure": erasure.id})
        told.append(runtime)
    for operator in (each for each in rebuilt if each.published):
        # Older changes have numbers that the person was part of.
        Publishing(lake, operator).begin_anew(spark)
    for runtime in told:
        # What was sent is told by rows that are gone now.
        runtime.begin_anew(again=False)
    return tuple(runtime.delivery.name for runtime in told), tuple(to_tell)


def _deliver(
    spark: SparkSession, lake: Lake, pipeline: Pipeline, delivery: Delivery, now: Callable[[], datetime]
) -> None:
    delivering = Delivering(spark, lake, pipeline, Observer(now))
    delivering.deliver_all(only=delivery.name)
    waiting = delivering.waiting.get(delivery.name)
    refused = delivering.paused.get(delivery.name)
    if waiting or refused:
        raise ErasureError(
            f"{delivery.to.address} has not taken what changes by the erasure: {waiting.why if waiting else refused}. "
            "What is erased so far stays erased; bring the target back, and run the same command again, which goes on."
        )


def _sources(delivery: Delivery) -> set[str]:
    """The names of the stream or operator that a delivery is of, and of the streams that this reads."""
    return {delivery.origin.of.name, *(stream.name for stream in delivery.reads)}


def _taken_out(spark: SparkSession, lake: Lake, erasure: Erasure, table: str, split: Split) -> Erasure:
    """The record with what was taken out of a table."""
    uri = lake.path(table)
    wanted = to_be_taken(spark, uri, split)
    if not wanted.rows:
        return erasure
    number = secrets.randbits(48)
    erasure = erasure.begins(table, Removed(wanted.rows, wanted.files), number).write(lake)
    taken = take_out(spark, uri, split, {"erasure": erasure.id}, {COMMIT: number})
    return erasure.ended(Removed(taken.rows, taken.files)).write(lake)


def _without_history(lake: Lake, erasure: Erasure, table: str) -> Erasure:
    """The record with the files of a table that only its old versions needed, which are deleted."""
    uri = lake.path(table)
    old = _old_files(uri)
    if not old:
        _forget_history(uri, erasure.id)
        return erasure
    erasure = erasure.begins(table, Removed(vacuumed=old)).write(lake)
    return erasure.ended(Removed(vacuumed=_forget_history(uri, erasure.id))).write(lake)


def _settled(lake: Lake, erasure: Erasure) -> Erasure:
    """An erasure that died, with what it had removed by then of the table at which it was."""
    at = erasure.under_way
    if at is None:
        return erasure
    table = delta.open_table(lake.path(at.table))
    if table is None:
        return replace(erasure, under_way=None).write(lake)
    if at.number is None:
        # Those that are still there are counted when they go.
        gone = Removed(vacuumed=max(0, at.removed.vacuumed - _old_files(lake.path(at.table))))
    else:
        gone = at.removed if table.transaction_version(COMMIT) == at.number else Removed()
    return erasure.ended(gone).write(lake)


def _old_files(uri: str) -> int:
    """The number of data files of the table that `_forget_history` would delete now."""
    table = delta.opened(uri)
    return len({path for hours, full in _VACUUMS for path in _vacuum(table, hours, full, dry_run=True)})


def _forget_history(uri: str, erasure: str) -> int:
    """Delete every file that only older versions of the table need, and every older entry of its log.

    Also what no version needs, an hour after it was written. Returns how many data files went. What the table says of
    itself is said once more before, by the one entry that stays, because readers look for it there.
    """
    table = delta.opened(uri)
    numbers = numbers_of(table)
    delta.note(uri, says={"erasure": erasure}, numbers=numbers)
    table = delta.opened(uri)
    gone = [path for hours, full in _VACUUMS for path in _vacuum(table, hours, full, dry_run=False)]
    table = delta.opened(uri)
    delta.note(uri, says={"erasure": erasure}, numbers=numbers)
    # Files have the time of their storage, and all entries before a checkpoint of this version are to go.
    clean_up(delta.opened(uri), utc_now() + timedelta(days=1))
    return len(gone)


def _vacuum(table: DeltaTable, hours: int, full: bool, *, dry_run: bool) -> list[str]:
    return table.vacuum(hours, dry_run=dry_run, enforce_retention_duration=False, full=full)


@dataclass(frozen=True)
class ErasurePreview:
    """The preview of an erasure: rows by table, operators built anew, views kept, and savepoints in the way.

    `unread`: rejected payloads of each stream without a readable field of that name, in which the value alone tells.
    """

    rows: dict[str, int]
    rebuilt: tuple[str, ...]
    kept: tuple[str, ...]
    savepoints: tuple[str, ...]
    unread: dict[str, int]


def preview_erasure(
    spark: SparkSession, lake: Lake, pipeline: Pipeline, person: Person, *, keep_numbers: bool = False
) -> ErasurePreview:
    """Count what is there of a person; changes nothing, and the pipeline may run.

    Raises:
        ErasureError: no stream has the column.
    """
    check_known(pipeline, person)
    occurrences = in_logs(spark, lake, pipeline, person)
    rows = {place_of_log(each.stream): each.valid + each.rejected for each in occurrences}
    for table in tables_of(lake, pipeline):
        if table not in rows and table.rpartition("/")[2] not in WITHOUT_ROWS:
            uri = lake.path(table)
            if person.is_told_by(delta.read(spark, uri)):
                rows[table] = to_be_taken(spark, uri, person.split()).rows
    rebuilt = affected(pipeline, [each.stream.name for each in occurrences if each.valid])
    stays = (operator for operator in rebuilt if keep_numbers and runtime_of(operator, lake).outlives(person.column))
    kept = [operator.name for operator in stays]
    return ErasurePreview(
        {table: count for table, count in rows.items() if count},
        tuple(operator.name for operator in rebuilt if operator.name not in kept),
        tuple(kept),
        tuple(each.name for each in savepoints(lake, pipeline)),
        unread_rejected(spark, lake, pipeline, person),
    )
