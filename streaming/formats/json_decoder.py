"""Payloads in JSON to values, in the Python workers of Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from streaming.base import sql
from streaming.formats.decoder import Decoder, Row
from streaming.formats.json_blocks import BlockReader, schema_of
from streaming.formats.json_text import object_of
from streaming.formats.nested import reader_of


@dataclass
class JsonDecoder(Decoder):
    """Reads objects by the `declared` columns; `fields` are the names of those that are not called as their column."""

    declared: tuple[sql.Column, ...]
    fields: Mapping[str, str]

    @property
    def name(self) -> str:
        return "json"

    def arrays(self, payloads: pa.BinaryArray, client: Any) -> list[pa.Array]:
        """Rows of flat objects without a defect are read together, in a fraction of the time; all others singly."""
        if self._blocks is None:
            return super().arrays(payloads, client)
        block = self._blocks.read(payloads)
        number = int(block.certain.sum())
        certain = [*block.columns, *(pa.nulls(number, each.type) for each in [*self.types][len(self.columns) :])]
        if number == len(payloads):
            return certain
        others = super().arrays(payloads.filter(pa.array(~block.certain)), client)
        order = np.empty(len(payloads), np.int64)
        order[block.certain] = np.arange(number)
        order[~block.certain] = np.arange(number, len(payloads))
        return [pa.concat_arrays(both).take(pa.array(order)) for both in zip(certain, others, strict=True)]

    def row(self, content: bytes, identity: int | None, client: Any) -> Row:
        return self._read(object_of(content))

    @cached_property
    def _read(self) -> Callable[[Any], Row]:
        return reader_of(self.declared, self.fields)

    @cached_property
    def _blocks(self) -> BlockReader | None:
        schema = schema_of(self.declared, self.fields)
        types = [each.type for each in self.types][: len(self.declared)]
        return None if schema is None else BlockReader(self.declared, schema, types)
