"""Where things live under the lake's root. The root may be any path or URI that both Spark and delta-rs know."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Protocol

from streaming.base import FrozenMapping, SettingsError

_NOT_IN_PATHS = "%*?[]{}\\"

OF_STREAMS = ("log", "batches", "dropped", "progress")
"""The tables in a stream's folder that are no operator's."""

OF_KEYS = ("changes", "changes_batches", "standing")
"""Those that are in the folder of a stream with a key besides."""


class Named(Protocol):
    """The owner of a folder in the lake: a stream, or a pipeline."""

    @property
    def name(self) -> str:
        """The folder."""


class Logged(Named, Protocol):
    """The owner of a log: a stream."""

    @property
    def revised(self) -> bool:
        """True if the log has the changes that follow from revisions, which lie in a log of their own."""


class Placed(Named, Protocol):
    """The owner of tables in the folder of something else: an operator in that of its stream."""

    @property
    def folder(self) -> str:
        """The folder."""


def place_of_log(stream: Logged) -> str:
    """The place of a log below the lake's root."""
    return f"{stream.name}/{'changes' if stream.revised else 'log'}"


def place_of_batches(stream: Logged) -> str:
    """The place of the archive of a log's batches below the lake's root."""
    return f"{stream.name}/{'changes_batches' if stream.revised else 'batches'}"


@dataclass(frozen=True)
class Sample:
    """The rows of logs that a replay takes: those of days from `since` on, and those for which the SQL `where` is true.

    Null takes all of them.
    """

    since: date | None = None
    where: str | None = None


@dataclass(frozen=True)
class Lake:
    """The layout below `root`: every table, landing folder and checkpoint has exactly one place.

    A lake with a `cut` can be read only.
    """

    root: str
    cut: FrozenMapping[str, int] | None = None
    """Where it is read as of: the newest batch of each stream's log; None for as it is now."""
    recomputed: FrozenMapping[str, str] = field(default_factory=lambda: FrozenMapping({}))
    """The folders with the tables that were computed for operators that had no version there, by their place."""
    versions: FrozenMapping[str, int] | None = None
    """The Delta version at which each table is read, by where it is, and no other table; None for the newest of all."""

    sample: Sample | None = None
    """The only rows of its logs that steps and reads take; None for all. Replays are of one, and write elsewhere."""

    def __post_init__(self) -> None:
        # delta-rs decodes a path as if it were an address, and Spark reads patterns in it: half of a table would land
        # elsewhere, or not be found.
        refused = next((character for character in self.root if character in _NOT_IN_PATHS), None)
        if refused is not None and "://" not in self.root:
            raise SettingsError(f"the lake's root {self.root!r} contains {refused!r}", "choose a folder without it.")

    def as_of(self, batches: Mapping[str, int]) -> Lake:
        """The lake as it is read when the newest batch of each stream is that of `batches`, by stream.

        A stream that is not among them has no batch yet.
        """
        return replace(self, cut=FrozenMapping(batches))

    def at_versions(self, versions: Mapping[str, int]) -> Lake:
        """The lake of tables at some versions of theirs, by the place of each, such as `orders/log`."""
        return replace(self, versions=FrozenMapping({self.path(place): number for place, number in versions.items()}))

    def version_read(self, uri: str) -> int | None:
        """The version at which a table is read, -1 for not at all; None for the newest there is."""
        return None if self.versions is None else self.versions.get(uri, -1)

    def batch_read(self, stream: Named) -> int | None:
        """The batch of a stream as of which the lake is read, -1 for none yet; None for the newest there is."""
        return None if self.cut is None else self.cut.get(stream.name, -1)

    def path(self, *parts: str) -> str:
        """The location `root/part/...`; a part that is absolute or a URI stands for itself."""
        location = self.root.rstrip("/")
        for part in parts:
            location = part if part.startswith("/") or "://" in part else f"{location}/{part}"
        return location

    def log(self, stream: Logged) -> str:
        """The event log that operators read: of a stream with a key its changes."""
        return self.path(place_of_log(stream))

    def plan_of_corrections(self, folder: str, operator: str) -> str:
        """The file with the days of an operator that were due by the newest plan, in the operator's folder."""
        return self.path(folder, f"_late-{operator}.json")

    def declaration(self, stream: str) -> str:
        """The file with the declaration by which the newest batches of a stream of that name are judged."""
        return self.path(stream, "_declaration.json")

    def batches(self, stream: Logged) -> str:
        """The archive of what the log's commits said of their batches."""
        return self.path(place_of_batches(stream))

    def standing(self, stream: Logged) -> str:
        """The newest revision of each key of a stream that has one."""
        return self.path(stream.name, "standing")

    def dropped(self, stream: Named) -> str:
        """The numbers of rows of each batch that the stream's retention has dropped from the log."""
        return self.path(stream.name, "dropped")

    def table(self, operator: Placed, suffix: str = "") -> str:
        """A table of an operator; without a suffix its own."""
        folder = self.recomputed.get(self.path(operator.folder, operator.name), operator.folder)
        return self.path(folder, f"{operator.name}_{suffix}" if suffix else operator.name)

    def with_recomputed(self, operators: Iterable[Placed], folder: str) -> Lake:
        """The lake in which the tables of `operators` are those in a `folder` of their own."""
        places = {self.path(operator.folder, operator.name): f"{folder}/{operator.folder}" for operator in operators}
        return replace(self, recomputed=FrozenMapping({**self.recomputed, **places}))

    def first(self, view: Placed) -> str:
        """The first results of a view."""
        return self.table(view)

    def corrections(self, view: Placed) -> str:
        """The corrections of a view."""
        return self.table(view, "corrections")

    def updates(self, view: Placed) -> str:
        """The corrections that the stream process itself made of a view with `late="update"`."""
        return self.table(view, "updates")

    def open(self, view: Placed) -> str:
        """The windows of a view with `early` that are still open."""
        return self.table(view, "open")

    def progress(self, pipeline: Named) -> str:
        """The record of what every batch of a running pipeline cost and brought."""
        return self.path(pipeline.name, "progress")

    def manifest(self, pipeline: Named) -> str:
        """The file that names the versions of a pipeline's tables that belong together."""
        return self.path(pipeline.name, "current.json")

    def savepoint(self, pipeline: Named, name: str, *parts: str) -> str:
        """A savepoint of a pipeline, or what lies in its folder."""
        return self.path(pipeline.name, "_savepoints", name, *parts)

    def report(self, name: str) -> str:
        """The published table of a report."""
        return self.path("reports", name)

    def verdicts(self) -> str:
        """The verdicts of the quality gate."""
        return self.path("quality", "verdicts")

    def checkpoint(self, stream: Named, query: str) -> str:
        """The checkpoint of one query; `log` is the ingest query."""
        return self.path("_checkpoints", stream.name, query)

    def machine_folder(self, pipeline: Named) -> Path:
        """Where the processes of this machine meet over a pipeline: beside its checkpoints, if they are here."""
        local = self.local("_checkpoints", pipeline.name)
        if local is not None:
            return local
        digest = hashlib.sha256(self.path("_checkpoints", pipeline.name).encode()).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"tidemark-{digest}"

    def local(self, *parts: str) -> Path | None:
        """The location `root/part/...` as a path of this machine, or None where the lake is elsewhere."""
        location = self.path(*parts).removeprefix("file://")
        return None if "://" in location else Path(location)
