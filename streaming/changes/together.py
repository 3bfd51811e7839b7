"""Versions of a pipeline's tables that belong together are found, and written down in its `current.json`."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from threading import Lock

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from streaming.base import FrozenMapping, StreamingError
from streaming.changes.looks import ChangePosition
from streaming.declare import CHANGES, CURRENT, Operator, Pipeline
from streaming.lake import Lake, place_of_log
from streaming.log import head, version_after
from streaming.operators import Progress, generation_of, open_beside, revision_followed
from streaming.tables import Manifest, delta

_REMEMBERED = 500
"""Points of each operator at which it may meet the others."""
_log = logging.getLogger("tidemark")


@dataclass(frozen=True)
class _Point:
    """The newest batch of each log that an operator's tables have followed, and their versions then, by place.

    `revisions`: its own newest one where it is published, and of each operator of which it reads what is current the
    one that it has followed, by name. A view over other views follows no log, so these alone tell its moment.
    """

    through: FrozenMapping[str, int]
    versions: FrozenMapping[str, int]
    revisions: FrozenMapping[str, int]


class Together:
    """The points at which a process has seen the operators of a pipeline, and the newest at which all have been.

    Operators of a running stream go on by themselves, so they are hardly ever at one batch at one instant. They have
    been at the same batch at different ones, and Delta keeps its versions.
    """

    def __init__(self, lake: Lake, pipeline: Pipeline) -> None:
        self._lake = lake
        self._pipeline = pipeline
        self._points: dict[str, dict[tuple[Mapping[str, int], Mapping[str, int]], _Point]] = {}
        self._lock = Lock()

    def see(self, operator: Operator) -> None:
        """Remember where an operator is now, if its tables are of one point."""
        point = _point_of(self._lake, operator)
        if point is None:
            return
        with self._lock:
            points = self._points.setdefault(operator.name, {})
            points[point.through, point.revisions] = point
            while len(points) > _REMEMBERED:
                points.pop(next(iter(points)))

    def note(self, paused: Mapping[str, str] | None = None) -> Manifest | None:
        """Write down the newest versions that belong together; returns what is written there then.

        Those of operators that are `paused`, each with the reason, are left out; without it, those that are left out so
        far. Where there are none, the last ones stay. Nothing is raised where it fails: the next look tries again.
        """
        before = None
        try:
            before = Manifest.read(self._lake, self._pipeline)
            without = paused if paused is not None else {} if before is None else before.without
            now = self._newest(without)
            if now is None or now == before:
                return before
            now.write(self._lake, self._pipeline)
        except (StreamingError, DeltaError, OSError) as failed:
            _log.warning("what belongs together of %r could not be written down: %s", self._pipeline.name, failed)
            return before
        return now

    def _newest(self, without: Mapping[str, str]) -> Manifest | None:
        operators = [operator for operator in self._pipeline.operators if operator.name not in without]
        for operator in operators:
            self.see(operator)
        with self._lock:
            points = [[*self._points.get(operator.name, {}).values()][::-1] for operator in operators]
        # Who follows most logs decides for the others, and who has been at fewest points has the least to be tried.
        met = _meeting(sorted(points, key=lambda each: (-max((len(at.through) for at in each), default=0), len(each))))
        return None if met is None else self._manifest(met, without)

    def _manifest(self, points: Iterable[_Point], without: Mapping[str, str]) -> Manifest | None:
        through: dict[str, int] = {}
        versions: dict[str, int] = {}
        for point in points:
            through |= point.through
            versions |= point.versions
        for stream in self._pipeline.logs:
            log = delta.open_table(self._lake.log(stream))
            newest = None if log is None else head(self._lake, stream, log.version())
            if log is None or newest is None:
                # Nobody has sent anything yet, such as to a stream of rules.
                continue
            followed = through.setdefault(stream.name, newest.number)
            is_newest = followed == newest.number
            version = log.version() if is_newest else version_after(self._lake, stream, followed)
            if version is None:
                return None
            versions[place_of_log(stream)] = version
        if not versions:
            return None
        return Manifest(FrozenMapping(through), FrozenMapping(versions), FrozenMapping(without))


def note_together(lake: Lake, pipeline: Pipeline, paused: Mapping[str, str] | None = None) -> Manifest | None:
    """Write down the versions that the tables have by now, if they belong together, as `Together.note` does."""
    return Together(lake, pipeline).note(paused)


def _meeting(points: list[list[_Point]]) -> list[_Point] | None:
    """One point of each operator, so that all are at the same batches of a log and the same revisions of an operator.

    It is the newest of the first one. The points of each are given with the newest first. None where there are none.
    """
    if not points or not all(points):
        return None
    for first in points[0]:
        through, revisions, met = dict(first.through), dict(first.revisions), [first]
        for others in points[1:]:
            same = (each for each in others if _agree(through, each.through) and _agree(revisions, each.revisions))
            if (found := next(same, None)) is None:
                break
            through |= found.through
            revisions |= found.revisions
            met.append(found)
        else:
            return met
    return None


def _agree(some: Mapping[str, int], others: Mapping[str, int]) -> bool:
    """True where the numbers that both have are the same."""
    return all(some.get(name, number) == number for name, number in others.items())


def _point_of(lake: Lake, operator: Operator) -> _Point | None:
    """The point at which an operator's tables are now; None where they are of different ones."""
    own = delta.open_table(lake.table(operator))
    if own is None:
        return None
    if not operator.published:
        through = Progress.of(operator, own).through
        return _placed(operator, through, _followed(operator, own), {"": own, **_beside(lake, operator, own, through)})
    changes, current = (delta.open_table(lake.table(operator, suffix)) for suffix in (CHANGES, CURRENT))
    if changes is None or current is None:
        return None
    at = ChangePosition.of(changes)
    if at.of_generation != generation_of(own) or ChangePosition.of(current).revision != at.revision:
        return None
    try:
        seen = own if at.first == own.version() else delta.open_table(lake.table(operator), at.first)
    except DeltaError:
        # Its entry was cleaned away since; the next look is at a newer one.
        return None
    if seen is None:
        return None
    through, followed = Progress.of(operator, seen).through, _followed(operator, seen)
    if operator.allowed_lateness is not None and {at.updates} != {*through.values()}:
        return None
    # One that was compacted since has the same rows in fewer files.
    is_same = Progress.of(operator, own).through == through and _followed(operator, own) == followed
    tables = {"": own if is_same else seen, CHANGES: changes, CURRENT: current}
    return _placed(operator, through, {**followed, operator.name: at.revision}, tables)


def _followed(operator: Operator, table: DeltaTable) -> dict[str, int]:
    """The revision that an open table of the operator has followed of each one of which it reads what is current."""
    return {each.name: revision_followed(table, each) for each in operator.reads_current}


def _placed(
    operator: Operator, through: Mapping[str, int], revisions: Mapping[str, int], tables: Mapping[str, DeltaTable]
) -> _Point:
    places = {f"{operator.folder}/{operator.table_name(suffix)}": table.version() for suffix, table in tables.items()}
    return _Point(FrozenMapping(through), FrozenMapping(places), FrozenMapping(revisions))


def _beside(lake: Lake, operator: Operator, own: DeltaTable, through: Mapping[str, int]) -> dict[str, DeltaTable]:
    """Its other tables that have followed as much as its own."""
    suffixes = [spec.suffix for spec in operator.streamed if spec.suffix]
    beside = {suffix: open_beside(own, lake.table(operator, suffix)) for suffix in suffixes}
    return {
        suffix: table
        for suffix, table in beside.items()
        if table is not None and Progress.of(operator, table).through == through
    }
