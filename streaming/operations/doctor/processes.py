"""What processes leave behind: leases and savepoints."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from streaming.declare import Pipeline
from streaming.lake import Lake
from streaming.operations.doctor.ailment import Ailment
from streaming.operations.erasure import erasures
from streaming.operations.restore import lost_tables
from streaming.operations.saved import Savepoint
from streaming.operations.savepoints import savepoints
from streaming.service import has_left_record
from streaming.tables import storage


def examine_lease(lake: Lake, pipeline: Pipeline) -> Iterator[Ailment]:
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


def examine_savepoints(lake: Lake, pipeline: Pipeline) -> Iterator[Ailment]:
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


def examine_erasures(lake: Lake, pipeline: Pipeline) -> Iterator[Ailment]:
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
