"""The publication of a report: one small file that says which versions of its sections are the report.

Sections are tables of their own and cannot be committed together. So each is written first, as a version that nobody
asks for yet; then this file is put in place whole, and that is the publication. A process that dies before it leaves
the report as it was; one that dies after it leaves at most the files of the report before, and their digests tell.
"""

from __future__ import annotations

import hashlib
import json
import math
import uuid
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from deltalake.exceptions import DeltaError

from platform_assets.reports.report import Report
from quality import Pin, Pins, table_id
from streaming.base import LogError, ReadError, told
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
    return None if publication is None else read_sections(lake, publication)


def read_sections(lake: Lake, publication: Publication) -> dict[str, pa.Table]:
    """The sections of a publication by table name.

    Raises:
        ReadError: a version of them was cleaned away.
    """
    with _read_or_gone(publication):
        opened = {name: delta.open_table(lake.report(name), version) for name, version in publication.versions.items()}
        return {name: delta.contents(table) for name, table in opened.items() if table is not None}


def read_section_with(lake: Lake, publication: Publication, columns: Collection[str]) -> pa.Table | None:
    """The first section of a publication that has these columns, None where none has; no other one is read.

    Raises:
        ReadError: as `read_sections` does.
    """
    with _read_or_gone(publication):
        for name, version in publication.versions.items():
            table = delta.open_table(lake.report(name), version)
            if table is not None and {*columns} <= {field.name for field in table.schema().fields}:
                return delta.contents(table)
    return None


@contextmanager
def _read_or_gone(publication: Publication) -> Iterator[None]:
    try:
        yield
    except (DeltaError, FileNotFoundError) as error:
        raise ReadError(
            f"the rows that run {publication.run_id} has published of report {publication.report!r} at "
            f"{told(publication.published_at)} were cleaned away.",
            f"`tidemark report {publication.report}` publishes what is current now.",
            report=publication.report,
        ) from error


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
    tables = ((pin, delta.open_table(pin.uri)) for pin in publication.pins.tables)
    return any(
        table is not None and (table_id(table) != pin.table_id or pin.version <= last_superseded(table))
        for pin, table in tables
    )


def digest(content: bytes) -> str:
    """The SHA-256 digest by which a file is known to belong to a publication."""
    return hashlib.sha256(content).hexdigest()


def _place(lake: Lake, report: str) -> str:
    return f"{lake.report(report)}.json"


def publications(lake: Lake, report: Report) -> Iterator[Publication]:
    """The publications of a report, newest first, as far back as the commits of its tables tell of them.

    Of those before the newest no `files` are told, and of `dimensions` those that the newest has, too. They are the
    runs that have written every section of today that was there then; one that died just before it was put in place, is
    among them.
    """
    newest = read_publication(lake, report.name)
    if newest is None:
        return
    yield newest
    runs = {section.table: _Runs(lake, section.table) for section in report.sections}
    own = delta.open_table(lake.report(report.name), newest.versions[report.name])
    for commit in () if own is None else newest_commits(own):
        says = commit["userMetadata"]
        if not isinstance(says, dict) or says.get("report") != report.name or says["run_id"] == newest.run_id:
            continue
        versions = {table: version for table, of in runs.items() if (version := of.version(says["run_id"])) is not None}
        if all(table in versions or of.begin_after(commit["timestamp"]) for table, of in runs.items()):
            yield Publication(
                report.name,
                says["run_id"],
                datetime.fromtimestamp(commit["timestamp"] / 1000, UTC),
                Pins.from_json(says["pins"]),
                versions,
                tuple(says.get("footnotes", ())),
                {},
                _dimensions(newest, says.get("dimensions", {})),
            )


class _Runs:
    """The versions of a section's table by the run that has written them, read as far back as they are asked for."""

    def __init__(self, lake: Lake, section: str) -> None:
        table = delta.open_table(lake.report(section))
        self._older = iter(()) if table is None else newest_commits(table)
        self._versions: dict[str, int] = {}
        self._began = math.inf if table is None else -math.inf

    def version(self, run_id: str) -> int | None:
        """The version that a run has written, None where it has written none that is known."""
        while run_id not in self._versions:
            commit = next(self._older, None)
            if commit is None:
                return None
            if commit["version"] == 0:
                self._began = commit["timestamp"]
            says = commit["userMetadata"]
            if isinstance(says, dict) and "run_id" in says:
                self._versions.setdefault(says["run_id"], int(commit["version"]))
        return self._versions[run_id]

    def begin_after(self, timestamp: int) -> bool:
        """True if the table is known to be younger, once a run was asked for that has not written it."""
        return self._began > timestamp


def _dimensions(newest: Publication, versions: Mapping[str, int]) -> dict[str, Pin]:
    known = newest.dimensions
    return {name: replace(known[name], version=version) for name, version in versions.items() if name in known}


def published_as_of(lake: Lake, report: Report) -> Publication | None:
    """The newest publication of exactly the batches as of which the lake is read, by the tables of the report.

    None where there is none: of these batches nothing was published, or it is too long ago for the tables to tell. A
    gate lets pass only what is corrected, so that what it has published of some batches is what they amount to.
    """
    wanted = dict(lake.cut or {})
    every = publications(lake, report)
    return next((each for each in every if batches_of(lake, report, each.pins) == wanted), None)


def batches_of(lake: Lake, report: Report, pins: Pins) -> dict[str, int] | None:
    """The newest batch of each log that was pinned, by stream; None where one cannot be read at that version now.

    As of a lake that was moved since: its pins are of another place. Likewise of a log that was made anew since.
    """
    now, batches = replace(lake, cut=None), {}
    for stream in report.pipeline.streams:
        pinned = next((pin for pin in pins.tables if pin.uri == lake.log(stream)), None)
        if pinned is None and stream in report.streams:
            return None
        try:
            if pinned is not None and pinned.is_replaced:
                return None
            newest = None if pinned is None else head(now, stream, pinned.version)
        except (DeltaError, LogError):
            return None
        if newest is not None:
            batches[stream.name] = newest.number
    return batches
