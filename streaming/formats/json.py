"""JSON: one object a payload, typed columns and reasons; never a silent null, never a value that was not written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from streaming.base import DeclarationError, check_column_name, pc, sql
from streaming.formats.decoder import UNKNOWN, UNREADABLE, WRONG, Decoder, Row, Unreadable, arrow_types
from streaming.formats.format import TYPED, Format, checked_fields
from streaming.formats.json_blocks import BlockReader, schema_of
from streaming.formats.json_masks import FieldMasks
from streaming.formats.json_text import object_of, text_of
from streaming.formats.leaves import Leaves, kind_of, leaf_of, typed_leaf_of
from streaming.formats.nested import reader_of


@dataclass(frozen=True)
class Json(Format):
    """One JSON object per payload, against a schema in Spark DDL; `not null` marks a required field.

    Types: string, boolean, integers, float, double, decimal(p, s), date, timestamp (ISO-8601 text *with* an offset),
    and array, struct or map (of texts to anything) of these. Each value is judged by itself, however deep it lies: a
    number in a text column, a fraction in an integer, more digits than a decimal or a microsecond has and a missing
    field of a struct that is `not null` reject the row, and the reason has the path and the value. Nothing is rounded
    or cut; a double is the nearest one, and has one zero. Rows of a `Table` alone may have NaN, infinities and -0.0.

    JSON `null` and a missing field are both null. Fields that are not declared are named, those within a struct by
    their path, and their values ignored; names are told apart by their case. An object that has a name twice cannot be
    read, since nobody can tell which value is meant.

    `fields`: the names of the fields of columns that cannot be called so, such as `{"id": "_id"}`.

    Raises:
        DeclarationError: the schema cannot be read, or has a name or type that is not allowed; `fields` names no
            column, or a field that another column has.
    """

    schema: str
    fields: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for column in self.columns:
            check_column_name(column.name)
            try:
                reader_of([column])
            except ValueError as error:
                raise DeclarationError(
                    f"column {column.name!r} has type {column.type!r}, and JSON cannot carry {str(error)!r} here",
                    "use "
                    "string, boolean, int, bigint, float, double, decimal(p, s), date, timestamp, and array<>, "
                    "struct<> or map<string, > of these.",
                    column=column.name,
                ) from error
        object.__setattr__(self, "fields", checked_fields("Json", self.columns, self.fields))

    @cached_property
    def columns(self) -> tuple[sql.Column, ...]:
        """The declared columns, in order."""
        return sql.columns_of(self.schema)

    @property
    def decoder(self) -> Decoder:
        """The reader of its objects; Spark's own parser casts what stands within other values."""
        names = tuple(column.name for column in self.columns)
        return JsonDecoder(names, arrow_types(self.columns), None, self.columns, self.fields)

    @property
    def masks_payloads(self) -> bool:
        return True

    def masked_payload(self, payload: bytes, masks: Mapping[str, Callable[[bytes], bytes | None]]) -> bytes | None:
        """As the contract says; the object is written anew, without spaces."""
        try:
            return text_of(self.field_masks(masks).within(object_of(payload))).encode()
        except (Unreadable, UnicodeError):
            return None

    def field_masks(self, masks: Mapping[str, Callable[[bytes], bytes | None]]) -> FieldMasks:
        """The masks of columns as those of the fields of objects."""
        declared = {self.fields.get(column.name, column.name): kind_of(column) for column in self.columns}
        of_fields = {}
        for path, mask in masks.items():
            column, *within = path.split(".")
            of_fields[self.fields.get(column, column), *within] = mask
        return FieldMasks.of(of_fields, masks, declared)


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
        """Objects without a defect are read together, in a fraction of the time; all others singly."""
        if self._blocks is None:
            return super().arrays(payloads, client)
        block = self._blocks.read(payloads)
        number = int(block.certain.sum())
        reasons = (pa.nulls(number, self.types.field(name).type) for name in (UNREADABLE, WRONG))
        certain = [*block.columns, *reasons, block.unknown.cast(self.types.field(UNKNOWN).type)]
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
