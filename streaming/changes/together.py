"""Versions of a pipeline's tables that belong together are found, and written down in its `current.json`."""

from __future__ import annotations

from collections.abc import Mapping

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from streaming.base import FrozenMapping
from streaming.changes.looks import ChangePosition
from streaming.declare import CHANGES, CURRENT, Operator, Pipeline
from streaming.lake import Lake
from streaming.log import head, version_after
from streaming.operators import Progress, generation_of, open_beside
from streaming.tables import Manifest, delta


def note_together(lake: Lake, pipeline: Pipeline, paused: Mapping[str, str] | None = None) -> Manifest | None:
    """Write down the versions that the tables have by now, if they belong together; returns what is written there then.

    Those of operators that are `paused`, each with the reason, are left out. While an operator or what is published of
    it has followed less of a log than another, the last versions that belonged together stay.
    """
    before, now = Manifest.read(lake, pipeline), _together(lake, pipeline, paused or {})
    if now is None or now == before:
        return before
    now.write(lake, pipeline)
    return now


def _together(lake: Lake, pipeline: Pipeline, paused: Mapping[str, str]) -> Manifest | None:
    through: dict[str, int] = {}
    versions: dict[str, int] = {}
    for operator in pipeline.operators:
        if operator.name in paused:
            continue
        at = _at_one_point(lake, operator)
        if at is None or any(through.setdefault(name, number) != number for name, number in at[0].items()):
            return None
        versions |= {f"{operator.folder}/{operator.table_name(suffix)}": version for suffix, version in at[1].items()}
    for stream in pipeline.streams:
        log = delta.open_table(lake.log(stream))
        newest = None if log is None else head(lake, stream, log.version())
        if log is None or newest is None:
            # Nobody has sent anything yet, such as to a stream of rules.
            continue
        followed = through.setdefault(stream.name, newest.number)
        version = log.version() if followed == newest.number else version_after(lake, stream, followed)
        if version is None:
            return None
        versions[f"{stream.name}/log"] = version
    return Manifest(FrozenMapping(through), FrozenMapping(versions), FrozenMapping(paused)) if versions else None


def _at_one_point(lake: Lake, operator: Operator) -> tuple[Mapping[str, int], dict[str, int]] | None:
    """The newest batches that an operator's tables have followed, and their versions; None where they differ."""
    own = delta.open_table(lake.table(operator))
    if own is None:
        return None
    if not operator.published:
        through = Progress.of(operator, own).through
        return through, {"": own.version(), **_beside(lake, operator, own, through)}
    changes, current = (delta.open_table(lake.table(operator, suffix)) for suffix in (CHANGES, CURRENT))
    if changes is None or current is None:
        return None
    at = ChangePosition.of(changes)
    if at.of_generation != generation_of(own) or ChangePosition.of(current).revision != at.revision:
        return None
    try:
        seen = delta.opened(lake.table(operator), at.first)
    except DeltaError:
        # Its entry was cleaned away since; the next look is at a newer one.
        return None
    through = Progress.of(operator, seen).through
    if operator.allowed_lateness is not None and {at.updates} != {*through.values()}:
        return None
    # One that was compacted since has the same rows in fewer files.
    is_same = Progress.of(operator, own).through == through
    published = {CHANGES: changes.version(), CURRENT: current.version()}
    return through, {"": own.version() if is_same else seen.version(), **published}


def _beside(lake: Lake, operator: Operator, own: DeltaTable, through: Mapping[str, int]) -> dict[str, int]:
    """The versions of its other tables that have followed as much as its own."""
    beside = {
        spec.suffix: open_beside(own, lake.table(operator, spec.suffix)) for spec in operator.streamed if spec.suffix
    }
    return {
        suffix: table.version()
        for suffix, table in beside.items()
        if table is not None and Progress.of(operator, table).through == through
    }
