"""The declaration of a stream by which the newest batches of its log are judged, in a file beside the log."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from streaming.base import ORIGIN, DeclarationError, SourceError, arrow_schema
from streaming.declare import Stream
from streaming.lake import Lake, Named
from streaming.log.batches import head
from streaming.tables import FactChange, changed_facts, delta, storage

_MAKES, _PIPELINE = "makes", "pipeline"
_REVISIONS, _SOURCE, _ORIGIN = "revisions", "source", "origin"


def note_declaration(lake: Lake, pipeline: Named, stream: Stream) -> None:
    """Write down by which declaration the next batches are judged; to be called by whoever holds the lease.

    Nothing is written where that is the one that is there already, nor where the next batch is refused, as the changes
    that there are follow from another key, or the log from another source.
    """
    makes = {_MAKES: _makes(lake, stream), _ORIGIN: stream.source.origin}
    document = json.dumps({_PIPELINE: pipeline.name, **makes})
    changes = declaration_changes_of(lake, stream) or ()
    if stream.revised and any(each.fact == _REVISIONS for each in changes) and delta.exists(lake.log(stream)):
        return
    if refused_source(lake, stream, changes) is not None:
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


def refused_source(lake: Lake, stream: Stream, changes: Iterable[FactChange]) -> str | None:
    """The reason for which no run goes on from the log and its checkpoint, where the source is among the changes.

    None where a run goes on: also elsewhere, as far as what the log remembers of its source is true of the one there.
    """
    change = next((each for each in changes if each.fact == _SOURCE), None)
    if change is None or not delta.exists(lake.log(stream.revisions)):
        return None
    before, after = (str(each).partition(" ")[0] for each in (change.before, change.after))
    recorded = storage.read_json(lake.declaration(stream.name)) or {}
    # An older version wrote down no more than what the class is called.
    if not (_are_alike(recorded[_ORIGIN], stream.source.origin) if _ORIGIN in recorded else before == after):
        return (
            f"its log and checkpoint are of {before}, and no run goes on from them with "
            f"{'another' if before == after else 'a'} {after}: give the source back, and declare a stream of another "
            "name for the new one; a selection of both brings their rows together"
        )
    newest = head(lake, stream.revisions)
    try:
        stream.source.check_same(lake, {} if newest is None else newest.source)
    except SourceError as refused:
        return str(refused)
    return None


def _are_alike(one: str, other: str) -> bool:
    """True if rows with origins of these types can be of one source, whatever its class is called."""
    try:
        own, others = (_names(arrow_schema(f"{ORIGIN} {each}").field(ORIGIN)) for each in (one, other))
    except DeclarationError:
        # A type that only Spark knows is asked for by the run alone.
        return True
    # A source that tells more of its rows than before is the same.
    return own <= others or others <= own


def _names(field: pa.Field) -> set[str]:
    """The fields within one, those of structs within it by their path."""
    if not pa.types.is_struct(field.type):
        return set()
    names = {part.name: _names(part) for part in field.type}
    return {*names, *(f"{name}.{each}" for name, within in names.items() for each in within)}


def _makes(lake: Lake, stream: Stream) -> dict[str, Any]:
    """The fingerprint of a stream, and where it comes from, which is the same wherever the lake is moved."""
    place = stream.source.location(lake).replace(f"{lake.path().rstrip('/')}/", "")
    return {_SOURCE: f"{type(stream.source).__name__} {place}", **stream.fingerprint}


def noted_pipeline(lake: Lake, stream: str) -> str | None:
    """The pipeline that ingested a stream last, which may not be declared any more, by its name; None for none."""
    recorded = storage.read_json(lake.declaration(stream))
    return None if recorded is None else recorded[_PIPELINE]
