"""What a savepoint says of itself: its record, which lies beside what it keeps."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from streaming.lake import Lake, Named
from streaming.tables import storage

RECORD = "savepoint.json"


@dataclass(frozen=True)
class SavedTable:
    """A table at the `version` of a savepoint: its `place` below the lake's root, its identity, its bytes of data.

    `kept_at`: the place of a copy, of a table whose versions its writer removes; empty where maintenance keeps the
    version itself. The history is needed back to the version `back_to`; null where it tells nothing.
    """

    place: str
    identity: str
    version: int
    size: int
    kept_at: str = ""
    back_to: int | None = None


@dataclass(frozen=True)
class Savepoint:
    """A consistent cut of all tables of a pipeline.

    `batches`: the newest batch of each log. `through`: the batches up to which each operator follows the logs that it
    reads, which are not above them; from there its steps go on. `made_by`: the fingerprint of each operator. `sources`:
    where each stream's source was. `deliveries`: what the ledger of each said. `releases`: of what wrote the tables.
    """

    name: str
    pipeline: str
    taken_at: datetime
    batches: Mapping[str, int]
    through: Mapping[str, Mapping[str, int]]
    tables: tuple[SavedTable, ...]
    sources: Mapping[str, str]
    made_by: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    deliveries: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    releases: Mapping[str, str] = field(default_factory=dict)

    def of(self, place: str) -> SavedTable | None:
        """The table that lies at a place below the lake's root; None where it was not there yet."""
        return next((table for table in self.tables if table.place == place), None)

    def write(self, lake: Lake, pipeline: Named) -> None:
        """Put the record in place whole: from then on there is the savepoint."""
        document = {**asdict(self), "taken_at": self.taken_at.isoformat()}
        storage.put_whole(lake.savepoint(pipeline, self.name, RECORD), json.dumps(document).encode())

    @classmethod
    def read(cls, lake: Lake, pipeline: Named, name: str) -> Savepoint | None:
        """The savepoint of that name; None where there is none."""
        text = storage.read_text(lake.savepoint(pipeline, name, RECORD))
        if text is None:
            return None
        document = json.loads(text)
        tables = tuple(SavedTable(**table) for table in document.pop("tables"))
        return cls(**{**document, "tables": tables, "taken_at": datetime.fromisoformat(document["taken_at"])})
