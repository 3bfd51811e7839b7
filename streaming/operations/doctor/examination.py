"""Examines a pipeline in its lake; reads tables and small files, and starts no Spark."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from streaming.base import LogError, OperatorError, counted, utc_now
from streaming.declare import Delivery, Operator, Pipeline, Stream
from streaming.deliveries import Cursor, ledger_of, outbox_of
from streaming.lake import Lake
from streaming.log import archived_through, head, read_batches
from streaming.operations.doctor.ailment import Ailment, made_again
from streaming.operations.doctor.checkpoints import examine_checkpoint
from streaming.operations.doctor.tables import examine_tables
from streaming.operations.erasure import erasures
from streaming.operations.restore import lost_tables
from streaming.operations.savepoint import Savepoint, savepoints
from streaming.operators import generation_of, next_of, ready_generation, remove_next, runtime_of
from streaming.service import has_left_record, take_lease
from streaming.tables import delta, storage

_HISTORY_GONE = "history gone"
"""The kind; what follows from the batches of such a log cannot be told."""

_AHEAD = timedelta(days=1)
_SET_BACK = timedelta(minutes=5)
_NAMED = 5
_FORBIDDEN = "permissions wrong"
"""The kind; where it is found nothing else is looked at, as that may only be what this process cannot see."""

_FORBIDDEN_NAMED = 3
_FOLDER, _FILE = os.R_OK | os.W_OK | os.X_OK, os.R_OK
"""Files are replaced and never written to again, so it takes a right to their folder to change one."""


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
    if any(ailment.kind == _FORBIDDEN for ailment in ailments):
        return [], ailments
    with take_lease(lake, pipeline, "doctor"):
        for ailment in ailments:
            if ailment.heal is not None:
                ailment.heal()
    left = examine(lake, pipeline, now)
    return [ailment for ailment in ailments if ailment.heal is not None and ailment not in left], left


def _examine(lake: Lake, pipeline: Pipeline, now: datetime) -> Iterator[Ailment]:
    forbidden = list(_examine_permissions(lake, pipeline))
    yield from forbidden
    if forbidden:
        return
    yield from _examine_lease(lake, pipeline)
    unreadable: set[str] = set()
    for ailment in examine_tables(lake, pipeline, now):
        if ailment.kind == "table unreadable":
            unreadable.add(ailment.subject)
        yield ailment
    # What cannot be opened is named once, and nothing else is asked of it.
    for stream in pipeline.streams:
        if lake.log(stream) not in unreadable and lake.batches(stream) not in unreadable:
            for ailment in _examine_log(lake, stream, now):
                if ailment.kind == _HISTORY_GONE:
                    unreadable.add(lake.log(stream))
                yield ailment
            yield from examine_checkpoint(lake, stream)
    for operator in pipeline.operators:
        uris = {lake.table(operator, spec.suffix) for spec in operator.tables}
        if not unreadable & {*uris, *(lake.log(stream) for stream in operator.reads)}:
            yield from examine_operator(lake, operator)
    for delivery in pipeline.deliveries:
        if not unreadable:
            yield from _examine_delivery(lake, pipeline, delivery)
    yield from _examine_savepoints(lake, pipeline)
    yield from _examine_erasures(lake, pipeline)


def _examine_log(lake: Lake, stream: Stream, now: datetime) -> Iterator[Ailment]:
    """The batches of one log, as its commits and the archive tell of them."""
    uri = lake.log(stream)
    try:
        batches = read_batches(lake, stream)[::-1]
    except LogError as gone:
        yield Ailment(_HISTORY_GONE, uri, str(gone), "restore its _delta_log or the archive from a backup")
        return
    if not batches:
        return
    newest = batches[-1]
    numbers = {batch.number for batch in batches}
    gaps = [number for number in range(newest.number) if number not in numbers]
    if gaps:
        named = ", ".join(map(str, gaps[:_NAMED])) + (f" and {len(gaps) - _NAMED:,} more" if gaps[_NAMED:] else "")
        yield Ailment(
            "batches missing",
            uri,
            f"nothing tells of batch {named}: entries of its _delta_log are gone that no archive has",
            "restore the entries or the archive from a backup; rows are there, but their clock cannot be replayed",
        )
    archived = archived_through(lake, stream)
    if archived is not None and archived > newest.number:
        yield Ailment(
            "archive ahead",
            lake.batches(stream),
            f"it tells of batch {archived}, and the log ends with batch {newest.number}: the log is an older copy",
            "bring the log of the same time back, or remove the archive: what the log's own entries tell is archived "
            "again",
        )
    watermark = newest.after.watermark
    if watermark is not None and watermark - now > _AHEAD:
        yield Ailment(
            "clock in the future",
            uri,
            f"its watermark is {watermark.isoformat()}, so every row that comes is late until then",
            "`tidemark correct` counts late rows; a lower max_ahead on the clock rejects such event times from now on",
        )
    if newest.summary.processed_at - now > _SET_BACK:
        yield Ailment(
            "machine clock set back",
            uri,
            f"batch {newest.number} was processed at {newest.summary.processed_at.isoformat()}, which is yet to come",
            "set the machine's clock: freshness, heartbeats and max_ahead go by it",
        )


def examine_operator(lake: Lake, operator: Operator) -> Iterator[Ailment]:
    """One operator of the pipeline."""
    rebuild = made_again(operator)
    uri, runtime = lake.table(operator), runtime_of(operator, lake)
    opened = {spec.suffix: delta.open_table(lake.table(operator, spec.suffix)) for spec in operator.tables}
    if opened[""] is None:
        there = [lake.table(operator, suffix) for suffix, table in opened.items() if table is not None]
        if there:
            yield Ailment("table missing", uri, f"it is gone, and {', '.join(there)} of it is there", rebuild)
        return
    try:
        runtime.check()
    except OperatorError as changed:
        yield Ailment("another declaration", uri, str(changed).partition(" Give ")[0], rebuild)
    for stream in operator.follows:
        newest, through = head(lake, stream), runtime.through()[stream.name]
        if newest is not None and through > newest.number:
            yield Ailment(
                "table ahead of the log",
                uri,
                f"it follows batch {through} of {stream.name}, whose log ends with batch {newest.number}: the log is "
                "an older copy, and the batches that come now would be passed over",
                f"bring the log of the same time back; or {rebuild}",
            )
    if any(generation_of(table) > generation_of(opened[""]) for table in opened.values()):
        yield Ailment(
            "switch unfinished",
            uri,
            "a process died while it put tables in place that were built anew; readers see the old ones whole",
            "nothing: the next run finishes it",
            note=True,
        )
    elif ready_generation(lake, operator) is None and delta.exists(lake.table(next_of(operator))):
        yield Ailment(
            "rebuild unfinished",
            lake.table(next_of(operator)),
            "tables that were being built anew are there, and nobody goes on with them",
            f"remove them; `tidemark rebuild {operator.name}` begins anew",
            partial(remove_next, lake, operator),
        )


def _examine_delivery(lake: Lake, pipeline: Pipeline, delivery: Delivery) -> Iterator[Ailment]:
    """One delivery of the pipeline."""
    ledger, outbox = ledger_of(lake, delivery), outbox_of(delivery, lake)
    if ledger is None or ledger.of_generation != outbox.generation():
        return
    try:
        end = outbox.end(0)
    except LogError:
        # What a log lacks is told of where the log is examined.
        return
    if ledger.cursor > Cursor(end):
        yield Ailment(
            "delivery ahead of its table",
            lake.table(delivery, "delivered"),
            f"it has delivered up to {ledger.unit}, and what it delivers ends at {end}: the table is an older copy, "
            "and what comes now would never be delivered",
            f"bring the table of the same time back; or `tidemark redeliver {pipeline.name} {delivery.name} --all`",
        )


def _examine_permissions(lake: Lake, pipeline: Pipeline) -> Iterator[Ailment]:
    """Folders of the pipeline on this machine in which something is forbidden to this process; S3 is asked nothing."""
    if lake.local() is None:
        return
    names = {pipeline.name, *(stream.name for stream in pipeline.streams)}
    names |= {operator.folder for operator in pipeline.operators}
    names |= {delivery.folder for delivery in pipeline.deliveries}
    for root in sorted({lake.path(name) for name in names} | {lake.path("_checkpoints", name) for name in names}):
        forbidden = list(_forbidden(Path(root)))
        if forbidden:
            more = f" and {len(forbidden) - _FORBIDDEN_NAMED:,} more" if forbidden[_FORBIDDEN_NAMED:] else ""
            yield Ailment(
                _FORBIDDEN,
                root,
                f"user {_user()} may not read or change {counted(len(forbidden), 'part')} "
                f"of it: {', '.join(forbidden[:_FORBIDDEN_NAMED])}{more}; somebody else has run a command on this "
                "lake, and the next run ends with an error",
                f"give it back: `chown -R {_user()} {root}` and `chmod -R u+rwX {root}`; or run this as the user whose "
                "the lake is",
            )


def _forbidden(root: Path) -> Iterator[str]:
    pending = [root] if root.is_dir() else []
    while pending:
        folder = pending.pop()
        if _is_forbidden(folder, _FOLDER):
            yield str(folder)
            if _is_forbidden(folder, os.R_OK | os.X_OK):
                continue
        try:
            with os.scandir(folder) as scan:
                entries = list(scan)
        except FileNotFoundError:
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                pending.append(Path(entry.path))
            elif _is_forbidden(Path(entry.path), _FILE):
                yield entry.path


def _is_forbidden(path: Path, wanted: int) -> bool:
    """True if `path` is there and not for this process: a running pipeline removes files while they are looked at."""
    return not os.access(path, wanted, effective_ids=True) and os.path.lexists(path)


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def _examine_lease(lake: Lake, pipeline: Pipeline) -> Iterator[Ailment]:
    """The record of who runs the pipeline."""
    if has_left_record(lake, pipeline):
        yield Ailment(
            "lease left behind",
            lake.checkpoint(pipeline, "lease.json"),
            "the process that it names is gone, or half of it was written; it keeps nobody out",
            "remove it",
            # Whoever heals holds the lease, which leaves no record when it ends.
            lambda: None,
        )


def _examine_savepoints(lake: Lake, pipeline: Pipeline) -> Iterator[Ailment]:
    """The savepoints of the pipeline, and what is left of some that were never finished."""
    for saved in savepoints(lake, pipeline):
        lost = lost_tables(lake, pipeline, saved)
        if lost:
            yield Ailment(
                "savepoint damaged",
                lake.savepoint(pipeline, saved.name),
                f"it cannot be restored any more: {', '.join(lost)} has lost files or is another table",
                f"drop it: `tidemark savepoint {pipeline.name} {saved.name} --drop`, and take another",
            )
    for name in storage.folders(lake.savepoint(pipeline, "").rstrip("/")):
        if Savepoint.read(lake, pipeline, name) is None:
            yield Ailment(
                "savepoint unfinished",
                lake.savepoint(pipeline, name),
                "a process died while it was taken; it is none, and costs space",
                "remove it",
                partial(storage.remove_folder, lake.savepoint(pipeline, name)),
            )


def _examine_erasures(lake: Lake, pipeline: Pipeline) -> Iterator[Ailment]:
    """Erasures that died: what is noted of them may not be gone yet."""
    for erasure in erasures(lake):
        if erasure.pipeline == pipeline.name and erasure.done_at is None:
            yield Ailment(
                "erasure unfinished",
                f"erasure {erasure.id}",
                f"it was begun at {erasure.begun_at.isoformat(timespec='seconds')}, and something of it is left; until "
                "it is done the audit may count rows as erased that are there",
                f"run the same command again: `tidemark erase {pipeline.name} --key {erasure.column}=...`",
            )
