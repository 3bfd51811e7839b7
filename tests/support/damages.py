"""What can be done to a lake on purpose, each damage with the kind by which the doctor names it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from streaming import agg
from streaming.declare.delivery import Delivery
from streaming.declare.pipeline import Pipeline
from streaming.declare.windowed import Windowed
from streaming.lake.lake import Lake
from streaming.operators.progress import GENERATION
from streaming.operators.switching import next_of
from streaming.sinks.files import JsonLines
from streaming.sources.files import move_files
from streaming.tables import delta
from streaming.windows.window import Tumbling
from tests.streaming.keyed.functions import readings, sums
from tests.support.instants import NOW

tens = Windowed("tens", readings, Tumbling("10 seconds"), {"readings": agg.count()}, by=("id",))
out = Delivery("out", readings, JsonLines("exports/readings"))
pipeline = Pipeline(readings, (tens, sums), deliveries=(out,))
Damage = Callable[[Lake], object]


def checkpoint(lake: Lake, *parts: str) -> Path:
    return Path(lake.checkpoint(readings, "log"), *parts)


def entries(uri: str) -> list[Path]:
    return sorted(Path(uri, "_delta_log").glob("*.json"))


def data_file(uri: str) -> Path:
    return Path(uri, DeltaTable(uri).get_add_actions()["path"].to_pylist()[-1])


def older(lake: Lake, *uris: str) -> None:
    """Put tables back to what they were one commit of rows ago, as a backup would."""
    for uri in uris:
        for entry in entries(uri)[-1:]:
            entry.unlink()
            entry.with_suffix(".crc").unlink(missing_ok=True)


def older_log(lake: Lake) -> None:
    older(lake, lake.log(readings))
    shutil.rmtree(lake.batches(readings))


def older_checkpoint(lake: Lake) -> None:
    for kind in ("offsets", "commits"):
        for path in checkpoint(lake, kind).iterdir():
            if path.name.strip(".").removesuffix(".crc") == "2":
                path.unlink()


def rewritten_head(lake: Lake, change: Callable[[dict[str, Any]], None]) -> None:
    """Let the newest commit of the log say something else of its batch."""
    shutil.rmtree(lake.batches(readings))
    entry = entries(lake.log(readings))[-1]
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    for action in actions:
        if "commitInfo" in action:
            metadata = json.loads(action["commitInfo"]["userMetadata"])
            change(metadata)
            action["commitInfo"]["userMetadata"] = json.dumps(metadata)
    entry.write_text("\n".join(map(json.dumps, actions)))


def late_clock(metadata: dict[str, Any]) -> None:
    metadata["after"]["closed_to"] = metadata["after"]["watermark"] + 200 * 365 * 86_400_000_000


def hurried_clock(metadata: dict[str, Any]) -> None:
    metadata["summary"]["processed_at"] += 100 * 365 * 86_400_000_000


def skipped_number(metadata: dict[str, Any]) -> None:
    metadata["batch"] += 1


def archive_that_is_ahead(lake: Lake) -> None:
    uri = lake.batches(readings)
    commit = CommitProperties(app_transactions=[Transaction("archive", 7)])
    rows = pa.table({"batch": pa.array([7], pa.int64()), "described": ["{}"]})
    write_deltalake(DeltaTable(uri), rows, mode="append", commit_properties=commit)


def left_lease(lake: Lake) -> None:
    lease = {"host": os.uname().nodename, "process": 1, "what": "stream", "since": NOW.isoformat(), "token": "t"}
    path = Path(lake.checkpoint(readings, "lease.json"))
    path.write_text(json.dumps({**lease, "renewed": NOW.isoformat()}))


def abandoned_attempt(lake: Lake) -> None:
    path = Path(lake.log(readings), "data", "dead", "part-0.parquet")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"PAR1")
    os.utime(path, (0, 0))


def older_release(lake: Lake) -> None:
    """Let the newest commit of a view say that another delta-rs wrote it."""
    entry = entries(lake.table(tens))[-1]
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    for action in actions:
        if "commitInfo" in action:
            action["commitInfo"]["clientVersion"] = "delta-rs.0.1.0"
    entry.write_text("\n".join(map(json.dumps, actions)))


def cleaned_history(lake: Lake) -> None:
    """Remove what tells of all batches but the newest: the archive, and entries that a checkpoint makes superfluous."""
    shutil.rmtree(lake.batches(readings))
    DeltaTable(lake.log(readings)).create_checkpoint()
    for entry in entries(lake.log(readings))[:-1]:
        entry.unlink()


def gone_history(lake: Lake) -> None:
    """The same, and of the newest, too: the commit that is left is no batch."""
    log = DeltaTable(lake.log(readings))
    log.alter.set_table_properties({"delta.deletedFileRetentionDuration": "interval 8 days"})
    cleaned_history(lake)


def other_features(lake: Lake) -> None:
    uri = lake.table(tens)
    DeltaTable(uri).alter.set_table_properties({"delta.enableDeletionVectors": "true"})


DAMAGES: dict[str, tuple[str, Damage, set[str]]] = {
    # what was done: the kind that names it, how, and the kinds that follow from it
    "the log removed": ("log missing", lambda lake: shutil.rmtree(lake.log(readings)), {"delivery ahead of its table"}),
    "the checkpoint removed": ("checkpoint missing", lambda lake: shutil.rmtree(checkpoint(lake)), set()),
    "the checkpoint of another query": (
        "checkpoint of another query",
        lambda lake: checkpoint(lake, "metadata").write_text('{"id":"00000000-0000-0000-0000-000000000000"}'),
        set(),
    ),
    "an older checkpoint": ("checkpoint older than the log", older_checkpoint, set()),
    "an older log": (
        "checkpoint newer than the log",
        older_log,
        {"table ahead of the log", "delivery ahead of its table"},
    ),
    "a planned batch half written": (
        "checkpoint damaged",
        lambda lake: checkpoint(lake, "offsets", "3").write_text("v1\n{"),
        set(),
    ),
    "the query's id half written": (
        "checkpoint damaged",
        lambda lake: checkpoint(lake, "metadata").write_text("{"),
        set(),
    ),
    "a batch that nothing tells of": ("batches missing", lambda lake: rewritten_head(lake, skipped_number), set()),
    "an archive of a longer log": ("archive ahead", archive_that_is_ahead, set()),
    "a clock in another century": ("clock in the future", lambda lake: rewritten_head(lake, late_clock), set()),
    "a machine set back": ("machine clock set back", lambda lake: rewritten_head(lake, hurried_clock), set()),
    "a file removed": ("data files missing", lambda lake: data_file(lake.table(tens)).unlink(), set()),
    "a file cut off": (
        "data files changed",
        lambda lake: os.truncate(data_file(lake.table(sums)), 10),
        set(),
    ),
    "an entry removed": ("table unreadable", lambda lake: entries(lake.table(sums))[1].unlink(), set()),
    "an attempt that died": ("files left behind", abandoned_attempt, set()),
    "a shortcut that leads nowhere": (
        "checkpoint hint broken",
        lambda lake: Path(lake.table(tens), "_delta_log", "_last_checkpoint").write_text('{"version": 99}'),
        set(),
    ),
    "rows changed by hand": (
        "foreign commit",
        lambda lake: DeltaTable(lake.table(sums, "state")).update({"total": "total + 1"}),
        set(),
    ),
    "history cleaned by any commit": (
        "history cleaned by others",
        lambda lake: DeltaTable(lake.log(readings)).alter.set_table_properties(
            {"delta.enableExpiredLogCleanup": "true"}
        ),
        set(),
    ),
    "deletion vectors": ("features of other tools", other_features, set()),
    "a view's own table removed": ("table missing", lambda lake: shutil.rmtree(lake.table(sums)), set()),
    "a rebuild given up": (
        "rebuild unfinished",
        lambda lake: shutil.copytree(lake.table(sums), lake.table(next_of(sums))),
        set(),
    ),
    "a switch that died": (
        "switch unfinished",
        lambda lake: delta.note(lake.table(sums, "state"), says={GENERATION: 1}, numbers={GENERATION: 1}),
        set(),
    ),
    "another delta-rs": ("another release", older_release, set()),
    "the entries of old batches removed": ("batches missing", cleaned_history, set()),
    "the entries of all batches removed": ("history gone", gone_history, set()),
    "the lease of a dead process": ("lease left behind", left_lease, set()),
    "a lease half written": (
        "lease left behind",
        lambda lake: Path(lake.checkpoint(readings, "lease.json")).write_text("{"),
        set(),
    ),
    "a savepoint without its state": (
        "savepoint damaged",
        lambda lake: shutil.rmtree(lake.savepoint(readings, "second", "state")),
        set(),
    ),
    "a savepoint half taken": (
        "savepoint unfinished",
        lambda lake: Path(lake.savepoint(readings, "half", "state")).mkdir(parents=True),
        set(),
    ),
    "a lake moved": (
        "lake moved",
        lambda lake: (
            move_files(str(checkpoint(lake)), f"{lake.root}/landing/readings", "/x", "/old/landing/readings") and None
        ),
        set(),
    ),
}
HEALED = {
    "checkpoint missing",
    "checkpoint newer than the log",
    "checkpoint hint broken",
    "history cleaned by others",
    "rebuild unfinished",
    "lease left behind",
    "savepoint unfinished",
    "lake moved",
}
