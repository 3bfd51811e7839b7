"""The format of the platform's tables on disk: written when one is created, and looked at whenever one is opened.

It is a number in the table's own properties, which every open table has in memory. A table without one is of the first
format. It is raised by the release whose tables an earlier one would read wrongly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from deltalake import DeltaTable, Schema

from streaming.base import DISTRIBUTION, RELEASE, FormatError
from streaming.tables import s3
from streaming.tables.s3 import location

FORMAT = 1
"""The newest format that this release reads and writes."""
PROPERTY = "tidemark.format"
DELTA_CONFIGURATION = {
    # delta-rs's default of 100 makes small appends three times slower.
    "delta.checkpointInterval": "10",
    # The history is the clock's memory: no commit cleans it up by the way, only maintenance, which archives it first.
    # Looking for what could be cleaned also makes each commit dearer than the one before.
    "delta.enableExpiredLogCleanup": "false",
}
"""The configuration of Delta's own with which every table is created."""
CONFIGURATION = {PROPERTY: str(FORMAT), **DELTA_CONFIGURATION}
"""With the format beside it: delta-rs takes a property that is not Delta's only where it creates an empty table."""


def exists(uri: str) -> bool:
    """True if there is a table; a store that is away, or refuses, is a `StoreError`."""
    with s3.reaching(uri):
        return DeltaTable.is_deltatable(location(uri))


def opened(uri: str, version: int | None = None) -> DeltaTable:
    """The existing table at one `version` or the newest.

    Raises:
        FormatError: a newer release has made it, in a format that this one does not know.
    """
    table = DeltaTable(location(uri), version)
    number = table.metadata().configuration.get(PROPERTY, "1")
    if not (number.isdecimal() and int(number) <= FORMAT):
        raise FormatError(
            f"table {uri!r} has format {number}, and this release, Tidemark {RELEASE}, knows formats up to {FORMAT}: a "
            f"newer release has made it. Nothing was read or changed. Install that release here, too, with `pip "
            f"install --upgrade {DISTRIBUTION}`, or point TIDEMARK_HOME to another lake.",
            uri,
            number,
            FORMAT,
        )
    return table


def opened_or_created(
    uri: str,
    schema: Schema | pa.Schema,
    *,
    description: str,
    append_only: bool = False,
    partition_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
) -> DeltaTable:
    """The table at `uri`, created empty if it is not there yet; `properties` are its own.

    Raises:
        FormatError: as `opened` says.
    """
    if not exists(uri):
        DeltaTable.create(
            location(uri),
            schema,
            mode="ignore",
            partition_by=list(partition_by),
            description=description,
            configuration={**CONFIGURATION, "delta.appendOnly": str(append_only).lower(), **(properties or {})},
            # delta-rs refuses properties that are not Delta's own unless told not to.
            raise_if_key_not_exists=False,
        )
    return opened(uri)
