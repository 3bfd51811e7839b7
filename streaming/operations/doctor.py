"""Examines a pipeline in its lake: tables, checkpoints, permissions and records, held against one another.

It reads tables and small files, and starts no Spark.
"""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, rust_core_version
from deltalake.exceptions import DeltaError
from pyarrow import fs

from streaming.base import LogError, OperatorError, counted, utc_now
from streaming.declare import CHANGES, DEAD, PROGRESS, Delivery, Operator, Pipeline, Stream
from streaming.deliveries import Cursor, ledger_of, outbox_of
from streaming.lake import Lake
from streaming.log import QUERY, Batch, archived_through, head, read_batches
from streaming.operations.erasure import erasures
from streaming.operations.restore import lost_tables
from streaming.operations.savepoint import Savepoint, savepoints
from streaming.operators import generation_of, next_of, ready_generation, remove_next, runtime_of
from streaming.service import has_left_record, take_lease
from streaming.sources import Memory
from streaming.spark import forget_after, newest_committed, newest_planned, query_id, unreadable_files
from streaming.tables import delta, newest_commits, storage

_HISTORY_GONE = "history gone"
"""The kind; what follows from the batches of such a log cannot be told."""

_AHEAD = timedelta(days=1)
_SET_BACK = timedelta(minutes=5)
_NAMED = 5
_FORBIDDEN = "permissions wrong"
"""The kind; where it is found nothing else is looked at, as that may only be what this process cannot see."""

_PATHS_NAMED = 3
_FOLDER, _FILE = os.R_OK | os.W_OK | os.X_OK, os.R_OK
"""Files are replaced and never written to again, so it takes a right to their folder to change one."""
_HARMLESS = ("OPTIMIZE", "VACUUM", "CREATE TABLE", "SET TBLPROPERTIES", "ADD COLUMN", "UPDATE TABLE METADATA")
"""The names of the operations that change no row."""

_ABANDONED_AFTER = timedelta(days=8)
_FROM_BACKUP = "restore the checkpoint of the same time from a backup"


@dataclass(frozen=True)
class Ailment:
    """One thing that is not as it should be.

    `kind` is its stable name, `subject` what has it. `means` says what it is and what becomes of it, `advice` what to
    do. `heal` puts it right and can do no harm; None where only somebody can decide. A `note` breaks nothing.
    """

    kind: str
    subject: str
    means: str
    advice: str
    heal: Callable[[], None] | None = field(default=None, compare=False)
    note: bool = False


def made_again(operator: Operator) -> str:
    """The remedy for a table of an operator that is lost, or holds what it should not."""
    if operator.never_rebuilt:
        return f"restore it from a backup: {operator.never_rebuilt}"
    return f"build it anew from the log with `tidemark rebuild {operator.name}`"


def examine(lake: Lake, pipeline: Pipeline) -> list[Ailment]:
    """Everything about a pipeline's tables, checkpoints and small files that is not as it should be.

    The pipeline may run. Whether numbers are right is for the audit, how the stream is for `tidemark status`.
    """
    return list(_examine(lake, pipeline, utc_now()))


def heal(lake: Lake, pipeline: Pipeline) -> tuple[list[Ailment], list[Ailment]]:
    """Heal what can be healed without a decision; returns what was, and what is left.

    Raises:
        LeaseError: the pipeline runs.
    """
    # Before the lease is taken, which replaces the record of a holder that is gone.
    ailments = examine(lake, pipeline)
    if any(ailment.kind == _FORBIDDEN for ailment in ailments):
        return [], ailments
    with take_lease(lake, pipeline, "doctor"):
        # What ran until then may have put right what was found, or gone on with it.
        for ailment in examine(lake, pipeline):
            if ailment.heal is not None and ailment in ailments:
                ailment.heal()
    left = examine(lake, pipeline)
    return [ailment for ailment in ailments if ailment.heal is not None and ailment not in left], left


def _examine(lake: Lake, pipeline: Pipeline, now: datetime) -> Iterator[Ailment]:
    forbidden = list(_examine_permissions(lake, pipeline))
    yield from forbidden
    if forbidden:
        return
    yield from _examine_lease(lake, pipeline)
    unreadable: set[str] = set()
    for ailment in _examine_tables(lake, pipeline, now):
        if ailment.kind == "table unreadable":
            unreadable.add(ailment.subject)
        yield ailment
    # What cannot be opened is named once, and nothing else is asked of it.
    for stream in pipeline.logs:
        if lake.log(stream) not in unreadable and lake.batches(stream) not in unreadable:
            for ailment in _examine_log(lake, stream, now):
                if ailment.kind == _HISTORY_GONE:
                    unreadable.add(lake.log(stream))
                yield ailment
            if not stream.revised:
                yield from _examine_checkpoint(lake, stream)
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
            more = f" and {len(forbidden) - _PATHS_NAMED:,} more" if forbidden[_PATHS_NAMED:] else ""
            yield Ailment(
                _FORBIDDEN,
                root,
                f"user {_user()} may not read or change {counted(len(forbidden), 'part')} "
                f"of it: {', '.join(forbidden[:_PATHS_NAMED])}{more}; somebody else has run a command on this "
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


@dataclass(frozen=True)
class _Table:
    """A table of the pipeline.

    `way_out`: where its rows come from if it is lost. `has_metadata`: its commits say whose it is.
    """

    uri: str
    way_out: str
    has_metadata: bool


def _examine_tables(lake: Lake, pipeline: Pipeline, now: datetime) -> Iterator[Ailment]:
    """Every table of the pipeline that is there."""
    for table in _tables(lake, pipeline):
        if not delta.exists(table.uri):
            continue
        yield from _hint(table)
        try:
            opened = delta.opened(table.uri)
            files = _files_of(opened)
        except (DeltaError, OSError) as error:
            yield Ailment(
                "table unreadable",
                table.uri,
                f"it cannot be opened ({str(error).splitlines()[0]}): an entry of its _delta_log is gone or damaged",
                f"put the entries of {table.uri}/_delta_log back from a backup; or {table.way_out}",
            )
            continue
        yield from _missing(table, opened, files)
        yield from _left(table, opened, files, now)
        yield from _settings(table, opened)
        if table.has_metadata:
            yield from _foreign(table, opened)


def _tables(lake: Lake, pipeline: Pipeline) -> Iterator[_Table]:
    of_log = (
        f"restore a savepoint or a backup of {{}}: nothing else has its rows; `tidemark savepoints {pipeline.name}`"
    )
    for stream in pipeline.logs:
        yield _Table(lake.log(stream), of_log.format(stream.name), True)
        yield _Table(lake.batches(stream), of_log.format(stream.name), False)
    for stream in pipeline.streams:
        yield _Table(lake.dropped(stream), of_log.format(stream.name), False)
        if stream.revised:
            again = f"remove it; the next `tidemark run {pipeline.name}` makes it anew from the log"
            yield _Table(lake.standing(stream), again, False)
    for operator in pipeline.operators:
        way_out = made_again(operator)
        # What was built anew has the numbers of a generation, and the commits of another table.
        has_metadata = ready_generation(lake, operator) is None
        for spec in operator.tables:
            yield _Table(lake.table(operator, spec.suffix), way_out, has_metadata)
        for spec in operator.published:
            both = " and ".join(lake.table(operator, each.suffix) for each in operator.published)
            way_out = f"remove {both}; the next `tidemark run {operator.folder}` writes what is current anew"
            yield _Table(lake.table(operator, spec.suffix), way_out, has_metadata)
    for delivery in pipeline.deliveries:
        way_out = f"remove it and begin anew with `tidemark redeliver {pipeline.name} {delivery.name} --all`"
        for suffix in (PROGRESS, DEAD, CHANGES):
            yield _Table(lake.table(delivery, suffix), way_out, False)


def _files_of(table: DeltaTable) -> dict[str, fs.FileInfo]:
    return dict(storage.walked(table.table_uri, lambda name: name != "_delta_log" and not name.startswith(".")))


def _hint(table: _Table) -> Iterator[Ailment]:
    """The file that tells readers where to begin: only a shortcut, but one that leads nowhere stops some of them."""
    uri = f"{table.uri}/_delta_log/_last_checkpoint"
    text = storage.read_text(uri)
    if text is None:
        return
    try:
        version = int(json.loads(text)["version"])
    except (ValueError, KeyError, TypeError):
        version = -1
    if f"{version:020}.checkpoint.parquet" not in storage.files_in(f"{table.uri}/_delta_log"):
        yield Ailment(
            "checkpoint hint broken",
            table.uri,
            "its _last_checkpoint names no checkpoint that is there, which some readers take for a broken table",
            "remove it: it is a shortcut that the next checkpoint writes again",
            partial(storage.remove, uri),
        )


def _missing(table: _Table, opened: DeltaTable, files: dict[str, fs.FileInfo]) -> Iterator[Ailment]:
    added = opened.get_add_actions()
    live = list(zip(map(str, added["path"].to_pylist()), added["size_bytes"].to_pylist(), strict=True))
    gone = [path for path, _ in live if path not in files]
    if gone:
        yield Ailment(
            "data files missing",
            table.uri,
            f"{counted(len(gone), 'file')} of it {'is' if len(gone) == 1 else 'are'} gone: {_some(gone)}; every read "
            "of their rows fails",
            f"put them back from a backup; or {table.way_out}",
        )
    cut = [path for path, size in live if path in files and files[path].size != size]
    if cut:
        yield Ailment(
            "data files changed",
            table.uri,
            f"{counted(len(cut), 'file')} of it {'has' if len(cut) == 1 else 'have'} another length than was "
            f"committed: {_some(cut)}",
            f"put them back from a backup; or {table.way_out}",
        )


def _left(table: _Table, opened: DeltaTable, files: dict[str, fs.FileInfo], now: datetime) -> Iterator[Ailment]:
    """Files that are in no version: maintenance removes them after a week, so older ones say that none is done."""
    live = set(opened.get_add_actions()["path"].to_pylist())
    old = [path for path, info in files.items() if path not in live and now - info.mtime > _ABANDONED_AFTER]
    if old:
        size = sum(files[path].size for path in old)
        yield Ailment(
            "files left behind",
            table.uri,
            f"{counted(len(old), 'file')} of {size:,} bytes are not in it any more, or never were, as attempts that "
            "died leave them; they cost space and nothing else",
            "run `tidemark maintain`, or turn on the maintenance schedule",
            note=True,
        )


def _settings(table: _Table, opened: DeltaTable) -> Iterator[Ailment]:
    cleaned = "delta.enableExpiredLogCleanup"
    if opened.metadata().configuration.get(cleaned) != delta.CONFIGURATION[cleaned]:
        properties = {cleaned: delta.CONFIGURATION[cleaned]}
        yield Ailment(
            "history cleaned by others",
            table.uri,
            f"{cleaned} was changed, so any commit may remove entries that say how far the table is",
            "set it to false again",
            lambda: opened.alter.set_table_properties(properties),
        )
    if opened.protocol().min_reader_version > 1:
        yield Ailment(
            "features of other tools",
            table.uri,
            f"it has reader version {opened.protocol().min_reader_version}: somebody turned on deletion vectors or "
            "renamed columns, by which its files alone do not tell its rows any more",
            table.way_out,
        )


def _foreign(table: _Table, opened: DeltaTable) -> Iterator[Ailment]:
    commits = list(newest_commits(opened))
    foreign = [
        commit
        for commit in commits
        if not isinstance(commit["userMetadata"], dict) and not str(commit.get("operation")).startswith(_HARMLESS)
    ]
    if foreign:
        first = foreign[-1]
        yield Ailment(
            "foreign commit",
            table.uri,
            f"version {first['version']} is a {first.get('operation')} by another tool, and {len(foreign) - 1:,} more: "
            "rows were changed that follow from the log",
            f"see what became of them with `tidemark audit`; then {table.way_out}",
        )
    written_by = str(commits[0].get("clientVersion") or "") if commits else ""
    current = f"delta-rs.{rust_core_version()}"
    if written_by.startswith("delta-rs.") and written_by != current:
        yield Ailment(
            "another release",
            table.uri,
            f"{written_by} wrote it last, and this is {current}",
            "nothing: releases read each other's tables; if numbers differ, `tidemark audit` names them",
            note=True,
        )


def _some(paths: list[str]) -> str:
    more = f" and {len(paths) - _PATHS_NAMED:,} more" if len(paths) > _PATHS_NAMED else ""
    return ", ".join(sorted(paths)[:_PATHS_NAMED]) + more


def _examine_checkpoint(lake: Lake, stream: Stream) -> Iterator[Ailment]:
    """Find why the next batch of the query would not be the one that follows in the log."""
    place, log, memory = lake.checkpoint(stream, QUERY), delta.open_table(lake.log(stream)), _memory(lake, stream)
    checkpoint, knows_its_rows = stream.source.checkpoint(place, memory), stream.source.may_begin_anew(memory)
    damaged = unreadable_files(checkpoint)
    if damaged:
        yield from _damaged(lake, stream, checkpoint, damaged)
        return
    query, committed = query_id(checkpoint), newest_committed(checkpoint)
    if log is None:
        if committed is not None:
            yield Ailment(
                "log missing",
                lake.log(stream),
                f"it is gone, and its checkpoint says that {committed + 1:,} batches were in it; runs are refused",
                "restore the log from a backup or a savepoint; or, to take all files in anew, remove the checkpoint "
                f"{checkpoint}",
            )
        return
    written = None if query is None else log.transaction_version(query)
    if query is None or written is None:
        if log.version() and not knows_its_rows:
            yield _not_its_own(lake, stream, checkpoint, query)
        return
    planned = newest_planned(checkpoint)
    if committed is not None and committed > written:
        yield Ailment(
            "checkpoint newer than the log",
            checkpoint,
            f"it has done batch {committed} of its query, and the log ends with its batch {written}: the log is an "
            "older copy, and rows of later batches would never be read again",
            f"let it forget what comes after batch {written}, so that those rows are read again",
            partial(forget_after, checkpoint, written),
        )
    elif planned is None or planned < written:
        yield Ailment(
            "checkpoint older than the log",
            checkpoint,
            f"it ends with batch {planned} of its query, and the log has its batch {written}: it is an older copy, "
            "and batches planned anew under numbers that the log holds would be left out",
            _FROM_BACKUP if not knows_its_rows else f"remove it: the log knows its rows. {checkpoint}",
        )
    recorded = stream.source.recorded(place, lake)
    if recorded is not None:
        yield Ailment(
            "lake moved",
            checkpoint,
            f"it tells of files in {recorded}, and they lie in {stream.source.location(lake)} now: Spark would take "
            "each of them for a new one and read it again",
            "let it know the files under their new place",
            lambda: _moved(stream, place, recorded, lake),
        )


def _memory(lake: Lake, stream: Stream) -> Memory:
    try:
        newest = head(lake, stream)
    except LogError:
        # What a log lacks is told of where the log is examined.
        return {}
    return {} if newest is None else newest.source


def _batches(lake: Lake, stream: Stream) -> list[Batch]:
    try:
        return read_batches(lake, stream)
    except LogError:
        return []


def _moved(stream: Stream, checkpoint: str, recorded: str, lake: Lake) -> None:
    stream.source.move(checkpoint, recorded, lake, lake)


def _not_its_own(lake: Lake, stream: Stream, checkpoint: str, query: str | None) -> Ailment:
    kind, what = "checkpoint of another query", f"it belongs to query {query}, which has written nothing into the log"
    if query is None:
        kind, what = "checkpoint missing", "there is none, so Spark does not know which files are in the log"
    means = f"{what}; runs are refused, as they would repeat or lose rows"
    batches = _batches(lake, stream)
    newest = next((batch for batch in batches if batch.query is not None), None)
    # That of another query may be somebody's: where it belongs is for people to decide.
    if query is not None or not stream.source.can_remake_checkpoint or newest is None:
        return Ailment(kind, checkpoint, means, _FROM_BACKUP)
    if any(batch.erased for batch in batches):
        # A file of which nothing is left in the log would be taken for a new one.
        return Ailment(kind, checkpoint, f"{means}. Rows were erased, which would come back", _FROM_BACKUP)
    if any(batch.dropped for batch in batches):
        return Ailment(kind, checkpoint, f"{means}. Files of dropped days would be read once more", _FROM_BACKUP)
    return Ailment(
        kind,
        checkpoint,
        means,
        "let it be made again of the files that rows of the log come from",
        partial(_remake, lake, stream, checkpoint, newest),
    )


def _remake(lake: Lake, stream: Stream, checkpoint: str, newest: Batch) -> None:
    assert newest.query is not None and newest.query_batch is not None
    log = delta.open_table(lake.log(stream))
    assert log is not None
    stream.source.remake_checkpoint(checkpoint, lake, newest.query, newest.query_batch, _origins(log))


def _origins(log: DeltaTable) -> Iterator[Mapping[str, Any]]:
    """The different origins in each file of the log, but for the rows' positions."""
    files = storage.files_of(log)
    for path in log.get_add_actions()["path"].to_pylist():
        with files.open_input_file(unquote(path)) as handle:
            origins = pq.read_table(handle, columns=["_origin"])["_origin"].combine_chunks()
        fields = [name for name in ("path", "modified") if origins.type.get_field_index(name) >= 0]
        table = pa.table({name: origins.field(name) for name in fields})
        yield from (row for row in table.group_by(fields).aggregate([]).to_pylist() if None not in row.values())


def _damaged(lake: Lake, stream: Stream, checkpoint: str, damaged: list[str]) -> Iterator[Ailment]:
    log = delta.open_table(lake.log(stream))
    query = None if f"{checkpoint}/metadata" in damaged else query_id(checkpoint)
    written = None if log is None or query is None else log.transaction_version(query)
    # What a batch that is not in the log has planned is planned again.
    later = [uri for uri in damaged if written is not None and _batch_of(uri) > written]
    yield Ailment(
        "checkpoint damaged",
        checkpoint,
        f"{', '.join(uri.removeprefix(f'{checkpoint}/') for uri in damaged)} cannot be read: half of it was written",
        "remove what a batch has left that is not in the log; it is planned again"
        if later == damaged
        else _FROM_BACKUP,
        partial(_remove, later) if later == damaged else None,
    )


def _batch_of(uri: str) -> int:
    folder, _, name = uri.rpartition("/")
    return int(name) if name.isdigit() and folder.endswith(("/offsets", "/commits")) else -1


def _remove(uris: list[str]) -> None:
    for uri in uris:
        folder, _, name = uri.rpartition("/")
        storage.remove(f"{folder}/.{name}.crc")
        storage.remove(uri)
