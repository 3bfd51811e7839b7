"""The declaration of a stream by which the newest batches of its log are judged, in a file beside the log."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from typing import Any

from streaming.declare import Stream
from streaming.lake import Lake, Named
from streaming.tables import FactChange, changed_facts, delta, storage

_MAKES, _PIPELINE = "makes", "pipeline"
_REVISIONS, _SOURCE = "revisions", "source"


def note_declaration(lake: Lake, pipeline: Named, stream: Stream) -> None:
    """Write down by which declaration the next batches are judged; to be called by whoever holds the lease.

    Nothing is written where that is the one that is there already, nor where the next batch is refused, as the changes
    that there are follow from another key, or the log from another source.
    """
    document = json.dumps({_PIPELINE: pipeline.name, _MAKES: _makes(lake, stream)})
    changes = declaration_changes_of(lake, stream) or ()
    if stream.revised and any(each.fact == _REVISIONS for each in changes) and delta.exists(lake.log(stream)):
        return
    if refused_source(stream, changes) is not None and delta.exists(lake.log(stream.revisions)):
        return
    if storage.read_json(lake.declaration(stream.name)) != json.loads(document):
        storage.replace_bytes(lake.declaration(stream.name), document.encode(), uuid.uuid4().hex)


def declaration_changes_of(lake: Lake, stream: Stream) -> tuple[FactChange, ...] | None:
    """The facts in which the declaration of a stream differs from the one of its newest batches.

    None where nobody has written that one down, as of logs of an older release.
    """
    recorded = storage.read_json(lake.declaration(stream.name))
    if recorded is None:
        return None
    declared = json.loads(json.dumps(_makes(lake, stream)))
    # What an older version did not write down is not known to have changed.
    before = {_SOURCE: declared[_SOURCE], **recorded[_MAKES]}
    return tuple(changed_facts(before, declared))


def refused_source(stream: Stream, changes: Iterable[FactChange]) -> FactChange | None:
    """The change of the source with which no run goes on from the log and its checkpoint; None where there is none."""
    for change in changes:
        before, after = (str(each).partition(" ")[0] for each in (change.before, change.after))
        if change.fact == _SOURCE and (before != after or not stream.source.goes_on_elsewhere):
            return change
    return None


def _makes(lake: Lake, stream: Stream) -> dict[str, Any]:
    """The fingerprint of a stream, and where it comes from, which is the same wherever the lake is moved."""
    place = stream.source.location(lake).replace(f"{lake.path().rstrip('/')}/", "")
    return {_SOURCE: f"{type(stream.source).__name__} {place}", **stream.fingerprint}


def noted_pipeline(lake: Lake, stream: str) -> str | None:
    """The pipeline that ingested a stream last, which may not be declared any more, by its name; None for none."""
    recorded = storage.read_json(lake.declaration(stream))
    return None if recorded is None else recorded[_PIPELINE]
