"""The publication of a report: one small file that says which versions of its sections are the report.

Sections are tables of their own and cannot be committed together. So each is written first, as a version that nobody
asks for yet; then this file is put in place whole, and that is the publication. A process that dies before it leaves
the report as it was; one that dies after it leaves at most the files of the report before, and their digests tell.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

import pyarrow as pa
from deltalake.exceptions import DeltaError

from platform_assets.reports.report import Report
from quality import Pin, Pins
from streaming.base import LogError
from streaming.lake import Lake
from streaming.log import head
from streaming.operators import last_superseded
from streaming.tables import delta, newest_commits, storage


@dataclass(frozen=True)
class Publication:
    """A publication: its run and time, the `pins` it was made from, and the Delta version of each section by table.

    `dimensions` are the versions of what the report joins, by name; `footnotes` are what a reader must know; `files`
    are the SHA-256 digests of what lies beside the tables, by file name.
    """

    report: str
    run_id: str
    published_at: datetime
    pins: Pins
    versions: Mapping[str, int]
    footnotes: tuple[str, ...]
    files: Mapping[str, str]
    dimensions: Mapping[str, Pin]

    def to_json(self) -> dict[str, Any]:
        """The publication as JSON values."""
        return {
            "report": self.report,
            "run_id": self.run_id,
            "published_at": self.published_at.isoformat(),
            "pins": self.pins.to_json(),
            "versions": dict(self.versions),
            "footnotes": list(self.footnotes),
            "files": dict(self.files),
            "dimensions": {name: asdict(pin) for name, pin in self.dimensions.items()},
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Publication:
        """The inverse of `to_json`."""
        return cls(
            value["report"],
            value["run_id"],
            datetime.fromisoformat(value["published_at"]),
            Pins.from_json(value["pins"]),
            value["versions"],
            tuple(value["footnotes"]),
            value["files"],
            # Reports that were published before there were any.
            {name: Pin(**pin) for name, pin in value.get("dimensions", {}).items()},
        )


def put_publication(lake: Lake, publication: Publication) -> None:
    """Make it the report: in one step, in place of the one before."""
    content = json.dumps(publication.to_json(), indent=2).encode()
    storage.replace_bytes(_place(lake, publication.report), content, uuid.uuid4().hex)


def read_publication(lake: Lake, report: str) -> Publication | None:
    """The publication of the report of that name, or None where none was published."""
    text = storage.read_text(_place(lake, report))
    return None if text is None else Publication.from_json(json.loads(text))


def read_report(lake: Lake, report: str) -> dict[str, pa.Table] | None:
    """The sections of the published report by table name, all of one run; None where none was published."""
    publication = read_publication(lake, report)
    if publication is None:
        return None
    opened = {name: delta.open_table(lake.report(name), version) for name, version in publication.versions.items()}
    return {name: delta.contents(table) for name, table in opened.items() if table is not None}


def outdated_files(lake: Lake, publication: Publication) -> list[str]:
    """The files that are missing, or are not of this publication, because a process died."""
    folder = lake.path("reports")
    return [
        name
        for name, expected in publication.files.items()
        if digest(storage.read_bytes(f"{folder}/{name}") or b"") != expected
    ]


def is_of_older_results(publication: Publication) -> bool:
    """True if results that a report was made from were built anew since, so that they may be others by now."""
    tables = ((pin.version, delta.open_table(pin.uri)) for pin in publication.pins.tables)
    return any(table is not None and version <= last_superseded(table) for version, table in tables)


def digest(content: bytes) -> str:
    """The SHA-256 digest by which a file is known to belong to a publication."""
    return hashlib.sha256(content).hexdigest()


def _place(lake: Lake, report: str) -> str:
    return f"{lake.report(report)}.json"


@dataclass(frozen=True)
class PastReport:
    """A report as it was published once: the run, and the rows of its sections by table; `footnotes` as then."""

    run_id: str
    tables: Mapping[str, pa.Table]
    footnotes: tuple[str, ...]


def published_as_of(lake: Lake, report: Report) -> PastReport | None:
    """The newest report that was published of exactly the batches as of which the lake is read, by its tables.

    None where there is none: of these batches nothing was published, or it is too long ago for the tables to tell. A
    gate lets pass only what is corrected, so that what it has published of some batches is what they amount to.
    """
    newest = delta.open_table(lake.report(report.sections[0].table))
    for commit in () if newest is None else newest_commits(newest):
        says = commit["userMetadata"]
        if not isinstance(says, dict) or says.get("report") != report.name:
            continue
        if _batches(lake, report, Pins.from_json(says["pins"])) == dict(lake.cut or {}):
            return _published_by(lake, report, says["run_id"], says["footnotes"])
    return None


def _published_by(lake: Lake, report: Report, run_id: str, footnotes: Sequence[str]) -> PastReport | None:
    tables = {}
    for section in report.sections:
        table = delta.open_table(lake.report(section.table), _version_of_run(lake, section.table, run_id))
        if table is None:
            return None
        tables[section.table] = delta.contents(table)
    return PastReport(run_id, tables, tuple(footnotes))


def _batches(lake: Lake, report: Report, pins: Pins) -> dict[str, int] | None:
    """The newest batch of each log that was pinned, by stream; None where a log cannot be read at that version now."""
    now, batches = replace(lake, cut=None), {}
    for stream in report.pipeline.streams:
        pinned = next((pin for pin in pins.tables if pin.uri == lake.log(stream)), None)
        try:
            newest = None if pinned is None else head(now, stream, pinned.version)
        except (DeltaError, LogError):
            return None
        if newest is not None:
            batches[stream.name] = newest.number
    return batches


def _version_of_run(lake: Lake, section: str, run_id: str) -> int:
    """The version of a section's table that a run has written; `delta.BEFORE` where there is none."""
    table = delta.open_table(lake.report(section))
    commits = () if table is None else newest_commits(table)
    written = (
        int(commit["version"])
        for commit in commits
        if isinstance(commit["userMetadata"], dict) and commit["userMetadata"].get("run_id") == run_id
    )
    return next(written, delta.BEFORE)
