"""The proof of an erasure: every table and every file that is left is read, and the person looked for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streaming.declare import Pipeline
from streaming.lake import Lake
from streaming.operations.erasure.rows import TEXTS, Person
from streaming.tables import delta, storage

_CHECKPOINT = re.compile(r"_delta_log/.*\.parquet$")


@dataclass(frozen=True)
class Proof:
    """The counts of what was looked at, and the `places` of files in which the person is still found."""

    tables: int
    data_files: int
    entries: int
    places: tuple[str, ...]


def tables_of(lake: Lake, pipeline: Pipeline) -> list[str]:
    """Every Delta table in the folders of a pipeline and its streams, declared or not, by its place in the lake."""
    folders = dict.fromkeys([*(stream.name for stream in pipeline.streams), pipeline.name])
    return [
        f"{folder}/{name}"
        for folder in folders
        for name in sorted(storage.folders(lake.path(folder)))
        if delta.exists(lake.path(folder, name))
    ]


def prove(lake: Lake, pipeline: Pipeline, person: Person) -> Proof:
    """Look for the person in all tables of a pipeline: in each Parquet file that is there, of whichever version."""
    tables, files, entries, places = tables_of(lake, pipeline), 0, 0, list[str]()
    for table in tables:
        uri = lake.path(table)
        below = storage.below(uri)
        for path, _ in storage.walked(uri, lambda name: True):
            if path.startswith("_delta_log/") and not _CHECKPOINT.match(path):
                entries += 1
                with below.open_input_stream(path) as entry:
                    has_person = person.is_in_statistics(entry.read().decode("utf-8", "replace"))
            elif path.endswith(".parquet"):
                checkpoint = path.startswith("_delta_log/")
                files, entries = files + (not checkpoint), entries + checkpoint
                with below.open_input_file(path) as handle:
                    rows = pq.ParquetFile(handle)
                    has_person = any(_holds(person, batch, checkpoint) for batch in rows.iter_batches(10_000))
            else:
                continue
            if has_person:
                places.append(f"{table}/{path}")
    return Proof(len(tables), files, entries, tuple(places))


def _holds(person: Person, batch: pa.RecordBatch, checkpoint: bool) -> bool:
    if checkpoint:
        return any(person.is_in_statistics(text) for text in _strings(batch.to_pylist()))
    if "_rejected" in batch.schema.names:
        # Payloads of valid rows are told by their columns.
        rejected = pc.is_valid(batch.column("_rejected"))
        raw = pc.if_else(rejected, batch.column("_raw"), None)
        batch = batch.set_column(batch.schema.get_field_index("_raw"), "_raw", raw)
    return any(_column_holds(person, name, batch.column(place)) for place, name in enumerate(batch.schema.names))


def _column_holds(person: Person, name: str, column: pa.Array) -> bool:
    if pa.types.is_nested(column.type):
        return name != "_origin" and any(map(person.is_in, column.to_pylist()))
    if name in TEXTS:
        texts = (
            value.decode("utf-8", "replace") if isinstance(value, bytes) else value for value in column.to_pylist()
        )
        return any(text is not None and person.is_in_text(str(text)) for text in texts)
    return name == person.column and person.value in {str(value) for value in column.unique().to_pylist()}


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _strings(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _strings(each)
