"""Payloads in JSON to values, in the Python workers of Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.base import sql
from streaming.formats.decoder import Decoder, Row
from streaming.formats.format import TYPED
from streaming.formats.json_blocks import BlockReader, schema_of
from streaming.formats.json_text import object_of
from streaming.formats.leaves import Leaves, leaf_of, typed_leaf_of
from streaming.formats.nested import reader_of


@dataclass
class JsonDecoder(Decoder):
    """Reads objects by the `declared` columns; `fields` are the names of those that are not called as their column.

    `leaves`: how single values are read.
    """

    declared: tuple[sql.Column, ...]
    fields: Mapping[str, str]
    leaves: Leaves = leaf_of

    @property
    def name(self) -> str:
        return "json"

    def of_batch(self, batch: pa.RecordBatch, payloads: pa.BinaryArray, client: Any) -> list[pa.Array]:
        """Each payload as its source says that it was written."""
        if TYPED not in batch.schema.names:
            return self.arrays(payloads, client)
        typed = pc.fill_null(batch.column(TYPED), False).to_numpy(zero_copy_only=False)
        ours, others = (payloads.filter(pa.array(each)) for each in (typed, ~typed))
        return _merged(typed, self._of_typed.arrays(ours, client), self.arrays(others, client))

    def arrays(self, payloads: pa.BinaryArray, client: Any) -> list[pa.Array]:
        """Rows of flat objects without a defect are read together, in a fraction of the time; all others singly."""
        if self._blocks is None:
            return super().arrays(payloads, client)
        block = self._blocks.read(payloads)
        number = int(block.certain.sum())
        certain = [*block.columns, *(pa.nulls(number, each.type) for each in [*self.types][len(self.columns) :])]
        if number == len(payloads):
            return certain
        return _merged(block.certain, certain, super().arrays(payloads.filter(pa.array(~block.certain)), client))

    def row(self, content: bytes, identity: int | None, client: Any) -> Row:
        return self._read(object_of(content))

    @cached_property
    def _read(self) -> Callable[[Any], Row]:
        return reader_of(self.declared, self.fields, self.leaves)

    @cached_property
    def _of_typed(self) -> JsonDecoder:
        return replace(self, leaves=typed_leaf_of)

    @cached_property
    def _blocks(self) -> BlockReader | None:
        schema = schema_of(self.declared, self.fields)
        types = [each.type for each in self.types][: len(self.declared)]
        return None if schema is None else BlockReader(self.declared, schema, types, self.leaves)


def _merged(where: np.ndarray, ones: Sequence[pa.Array], others: Sequence[pa.Array]) -> list[pa.Array]:
    """Columns of the rows `where` it is true, and of the other ones, in the order of all rows."""
    if where.all() or not where.any():
        return [*(ones if where.any() else others)]
    order = np.empty(len(where), np.int64)
    number = int(where.sum())
    order[where] = np.arange(number)
    order[~where] = np.arange(number, len(where))
    return [pa.concat_arrays(both).take(pa.array(order)) for both in zip(ones, others, strict=True)]
