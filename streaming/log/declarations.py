"""The declaration of a stream by which the newest batches of its log are judged, in a file beside the log."""

from __future__ import annotations

import json
import uuid

from streaming.declare import Stream
from streaming.lake import Lake, Named
from streaming.tables import FactChange, changed_facts, storage

_MAKES, _PIPELINE = "makes", "pipeline"


def note_declaration(lake: Lake, pipeline: Named, stream: Stream) -> None:
    """Write down by which declaration the next batches are judged; to be called by whoever holds the lease.

    Nothing is written where that is the one that is there already.
    """
    document = json.dumps({_PIPELINE: pipeline.name, _MAKES: stream.fingerprint})
    if storage.read_json(lake.declaration(stream.name)) != json.loads(document):
        storage.replace_bytes(lake.declaration(stream.name), document.encode(), uuid.uuid4().hex)


def declaration_changes_of(lake: Lake, stream: Stream) -> tuple[FactChange, ...] | None:
    """The facts in which the declaration of a stream differs from the one of its newest batches.

    None where nobody has written that one down, as of logs of an older release.
    """
    recorded = storage.read_json(lake.declaration(stream.name))
    if recorded is None:
        return None
    return tuple(changed_facts(recorded[_MAKES], json.loads(json.dumps(stream.fingerprint))))


def noted_pipeline(lake: Lake, stream: str) -> str | None:
    """The pipeline that ingested a stream last, which may not be declared any more, by its name; None for none."""
    recorded = storage.read_json(lake.declaration(stream))
    return None if recorded is None else recorded[_PIPELINE]
