"""Tables: whether each can be opened, has its files, and was written by the platform alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from deltalake import DeltaTable, rust_core_version
from deltalake.exceptions import DeltaError
from pyarrow import fs

from streaming.base import counted
from streaming.declare import CHANGES, DEAD, PROGRESS, Pipeline
from streaming.lake import Lake
from streaming.operations.doctor.ailment import Ailment, made_again
from streaming.operators import ready_generation
from streaming.tables import delta, newest_commits, storage

_HARMLESS = ("OPTIMIZE", "VACUUM", "CREATE TABLE", "SET TBLPROPERTIES", "ADD COLUMN", "UPDATE TABLE METADATA")
"""The names of the operations that change no row."""

_ABANDONED_AFTER = timedelta(days=8)
_NAMED = 3


@dataclass(frozen=True)
class _Table:
    """A table of the pipeline.

    `way_out`: where its rows come from if it is lost. `has_metadata`: its commits say whose it is.
    """

    uri: str
    way_out: str
    has_metadata: bool


def examine_tables(lake: Lake, pipeline: Pipeline, now: datetime) -> Iterator[Ailment]:
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
    for stream in pipeline.streams:
        yield _Table(lake.log(stream), of_log.format(stream.name), True)
        yield _Table(lake.batches(stream), of_log.format(stream.name), False)
        yield _Table(lake.dropped(stream), of_log.format(stream.name), False)
    for operator in pipeline.operators:
        way_out = made_again(operator)
        # What was built anew has the numbers of a generation, and the commits of another table.
        has_metadata = ready_generation(lake, operator) is None
        for spec in operator.tables:
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
    names = {info.base_name for info in storage.listed(f"{table.uri}/_delta_log")}
    if f"{version:020}.checkpoint.parquet" not in names:
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
    more = f" and {len(paths) - _NAMED:,} more" if len(paths) > _NAMED else ""
    return ", ".join(sorted(paths)[:_NAMED]) + more
