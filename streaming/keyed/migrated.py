"""The state of a key as an older declaration left it, made into today's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from streaming.base import FunctionError, computes_as_sql, kept_as, python_values, raised
from streaming.declare import Keyed
from streaming.keyed.buckets import Buckets
from streaming.keyed.fold import as_json
from streaming.keyed.tasks import REPORT, BucketFile


class Migrated:
    """Makes today's state of each key: by `migrate`, where that is declared, else as it is, with what is new unset."""

    def __init__(self, keyed: Keyed, version: int) -> None:
        self._keyed = keyed
        self._version = version
        self._kept = {field.name: kept_as(field.type) for field in keyed.state_schema}

    def __call__(self, key: tuple[Any, ...], state: dict[str, Any]) -> tuple[Any, ...]:
        """The fields in order, as Arrow takes them.

        Raises:
            FunctionError: `migrate` raised, or returned what is no state.
        """
        given = as_json(state)
        try:
            made = state if self._keyed.migrate is None else self._keyed.migrate(state, self._version)
            self._check(made)
            return tuple(self._field(name, made.get(name)) for name in self._kept)
        except Exception as error:
            raise FunctionError(
                f"keyed function {self._keyed.name!r} cannot go on from the state of key {key!r}: migrate failed with "
                f"{raised(error)}. State of version {self._version}: {given}. Correct `migrate`, or "
                f"build the function anew with `tidemark rebuild {self._keyed.name}`. Nothing was changed."
            ) from error

    def _check(self, made: object) -> None:
        fields = ", ".join(self._kept) or "none"
        if not isinstance(made, Mapping):
            raise TypeError(f"it returned {made!r}, which is no dict of state fields ({fields})")
        if unknown := [name for name in made if name not in self._kept]:
            raise ValueError(
                f"it returned {', '.join(map(repr, unknown))}, which is not declared; fields are: {fields}"
            )

    def _field(self, name: str, value: Any) -> Any:
        try:
            return self._kept[name](value)
        except ValueError as error:
            raise ValueError(f"field {name!r}: {error}") from error


@dataclass(frozen=True)
class WriteMigrated:
    """Write today's state of the rows of an older table, whose state has `fields`, into the table at `uri`, in buckets.

    The columns are the hash, the first timer, the keys, those fields and all timers, by hash. A key is left out of
    which nothing is kept.
    """

    keyed: Keyed
    version: int
    uri: str
    schema: pa.Schema
    fields: tuple[str, ...] = ()
    buckets: Buckets = field(default_factory=lambda: Buckets.of_size(0, 0))

    @computes_as_sql
    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        migrated, reports = Migrated(self.keyed, self.version), []
        file: BucketFile | None = None
        number: int | None = None
        try:
            for row in (row for batch in batches for row in self._rows(batch, migrated)):
                bucket = self.buckets.of(row[0])
                if file is None or bucket != number:
                    reports += [] if file is None else [file.close()]
                    file, number = BucketFile(bucket, self.uri, self.schema), bucket
                file.add(row)
            reports += [] if file is None else [file.close()]
        except FunctionError as error:
            # Raised here, it would come back as a text within Spark's own traces.
            reports = [{"error": str(error)}]
        yield pa.RecordBatch.from_pylist(reports, schema=REPORT)

    def _rows(self, batch: pa.RecordBatch, migrated: Migrated) -> Iterator[tuple[Any, ...]]:
        ends = 2 + len(self.keyed.by)
        for row in zip(*map(python_values, batch.columns), strict=True):
            hash_of_key, due, *key = row[:ends]
            state, timers = row[ends:-1], row[-1]
            made = migrated(tuple(key), dict(zip(self.fields, state, strict=True)))
            if timers or any(value is not None for value in made):
                yield (hash_of_key, due, *key, *made, list((timers or {}).items()))
