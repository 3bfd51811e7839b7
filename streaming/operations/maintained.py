"""What maintenance remembers: the version at which it left each table, so that an unchanged one is left alone."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from deltalake import DeltaTable

from streaming.declare import Pipeline
from streaming.lake import Lake
from streaming.tables import delta, storage


@dataclass(frozen=True)
class MaintainedVersions:
    """Per table, by its place: its identity, its version after maintenance, and when that was.

    A small file in the lake. Where it is lost, every table is maintained once more, which changes nothing.
    """

    tables: dict[str, dict[str, Any]]

    @classmethod
    def read(cls, lake: Lake, pipeline: Pipeline) -> MaintainedVersions:
        """What the last maintenance of the pipeline's tables left behind; nothing before the first."""
        text = storage.read_text(_place(lake, pipeline))
        return cls({} if text is None else json.loads(text))

    def write(self, lake: Lake, pipeline: Pipeline) -> None:
        """Put it in place whole."""
        storage.replace_bytes(_place(lake, pipeline), json.dumps(self.tables).encode(), uuid.uuid4().hex)

    def is_due(self, uri: str, at: datetime, again_after: timedelta) -> bool:
        """Whether the table at `uri` is there and was written since, or was left alone for as long as `again_after`."""
        table = delta.open_table(uri)
        if table is None:
            return False
        last = self.tables.get(uri)
        if last is None or (last["id"], last["version"]) != _state(table):
            return True
        return at - datetime.fromisoformat(last["at"]) >= again_after

    def after(self, uri: str, at: datetime) -> MaintainedVersions:
        """With the table at `uri` maintained at the instant `at`, as it is now."""
        table = delta.open_table(uri)
        assert table is not None, uri
        identity, version = _state(table)
        return MaintainedVersions(self.tables | {uri: {"id": identity, "version": version, "at": at.isoformat()}})


def _state(table: DeltaTable) -> tuple[str, int]:
    return str(table.metadata().id), table.version()


def _place(lake: Lake, pipeline: Pipeline) -> str:
    return lake.path(pipeline.stream.name, f"_maintained-{pipeline.name}.json")
