"""`current.json` of a pipeline: versions of its tables that follow from the same batches of the logs."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from streaming.base import FrozenMapping
from streaming.lake import Lake, Named
from streaming.tables.storage import read_json, replace_bytes

_FORMAT = 1


@dataclass(frozen=True)
class Manifest:
    """Versions of a pipeline's tables that belong together.

    `through`: by stream, the newest batch of its log that all of them have followed. `versions`: by its place in the
    lake, such as `orders/orders_by_hour_current`, the Delta version of each table. `without`: operators whose tables
    are not among them because they are paused, with the reason.
    """

    through: Mapping[str, int]
    versions: Mapping[str, int]
    without: Mapping[str, str]

    @classmethod
    def read(cls, lake: Lake, pipeline: Named) -> Self | None:
        """The one that was written last; None where there is none, or a later release wrote it in another format."""
        document = read_json(lake.manifest(pipeline)) or {}
        parts = [document.get(name) for name in ("through", "versions", "without")]
        if document.get("format") != _FORMAT or not all(isinstance(part, dict) for part in parts):
            return None
        return cls(*(FrozenMapping(part) for part in parts if part is not None))

    def write(self, lake: Lake, pipeline: Named) -> None:
        """Put it in place of the one there is, whole."""
        document = {
            "format": _FORMAT,
            "pipeline": pipeline.name,
            **{name: dict(part) for name, part in vars(self).items()},
        }
        content = json.dumps(document, indent=2, sort_keys=True).encode()
        replace_bytes(lake.manifest(pipeline), content, uuid.uuid4().hex)
