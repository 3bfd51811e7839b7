"""Where things live under the lake's root. The root may be any path or URI that both Spark and delta-rs know."""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from streaming.base import SettingsError


class Named(Protocol):
    """What has a folder of its own in the lake: a stream, or a pipeline."""

    @property
    def name(self) -> str:
        """The folder."""


class OfStream(Named, Protocol):
    """What keeps its tables in the folder of a stream."""

    @property
    def of(self) -> Named:
        """The stream."""


@dataclass(frozen=True)
class Lake:
    """The layout below `root`: every table, landing folder and checkpoint has exactly one place."""

    root: str

    def __post_init__(self) -> None:
        # delta-rs decodes it, Spark does not: half of a table would land elsewhere.
        if "%" in self.root and "://" not in self.root:
            raise SettingsError(f"the lake's root {self.root!r} contains '%'; choose a folder without it.")

    def path(self, *parts: str) -> str:
        """The location `root/part/...`; a part that is absolute or a URI stands for itself."""
        location = self.root.rstrip("/")
        for part in parts:
            location = part if part.startswith("/") or "://" in part else f"{location}/{part}"
        return location

    def log(self, stream: Named) -> str:
        """The event log."""
        return self.path(stream.name, "log")

    def batches(self, stream: Named) -> str:
        """The archive of what the log's commits said of their batches."""
        return self.path(stream.name, "batches")

    def first(self, view: OfStream) -> str:
        """The first results of a view."""
        return self.path(view.of.name, view.name)

    def corrections(self, view: OfStream) -> str:
        """The corrections of a view."""
        return self.path(view.of.name, f"{view.name}_corrections")

    def updates(self, view: OfStream) -> str:
        """What the stream process itself corrected of a view with `late="update"`."""
        return self.path(view.of.name, f"{view.name}_updates")

    def open(self, view: OfStream) -> str:
        """The windows of a view with `early` that are still open."""
        return self.path(view.of.name, f"{view.name}_open")

    def progress(self, stream: Named) -> str:
        """What every batch of a running stream cost and brought."""
        return self.path(stream.name, "progress")

    def report(self, name: str) -> str:
        """The published table of a report."""
        return self.path("reports", name)

    def verdicts(self) -> str:
        """The verdicts of the quality gate."""
        return self.path("quality", "verdicts")

    def checkpoint(self, stream: Named, query: str) -> str:
        """The checkpoint of one query; `log` is the ingest query, any other name a view's."""
        return self.path("_checkpoints", stream.name, query)

    def machine_folder(self, stream: Named) -> Path:
        """Where the processes of this machine meet over a stream: beside its checkpoints, if they are here."""
        local = self.local("_checkpoints", stream.name)
        if local is not None:
            return local
        digest = hashlib.sha256(self.path("_checkpoints", stream.name).encode()).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"tidemark-{digest}"

    def local(self, *parts: str) -> Path | None:
        """The same location as a path of this machine, or None where the lake is elsewhere."""
        location = self.path(*parts).removeprefix("file://")
        return None if "://" in location else Path(location)
