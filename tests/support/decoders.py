"""Decoders of binary formats without Spark: made as `parse` makes them, and given payloads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlglot import exp

from streaming.base import sql
from streaming.formats.decoder import Decoder

_LEAVES = {
    "TEXT": pa.string(),
    "BINARY": pa.binary(),
    "BOOLEAN": pa.bool_(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "DATE": pa.date32(),
    "TIMESTAMPTZ": pa.timestamp("us", "UTC"),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "TIMESTAMPNTZ": pa.timestamp("us"),
}


@dataclass(frozen=True)
class Decoded:
    """What a decoder makes of one payload: values by column, reasons by column, and names of unknown fields."""

    values: dict[str, Any]
    unreadable: str | None
    wrong: dict[str, str]
    unknown: tuple[str, ...]


def arrow_schema(columns: Sequence[sql.Column]) -> pa.Schema:
    """Fields of Arrow for declared columns and for what a format adds to them, as Spark makes them."""
    reasons = pa.struct([pa.field(column.name, pa.string()) for column in columns])
    return pa.schema(
        [
            *(pa.field(column.name, _arrow_type(exp.DataType.build(column.type, "spark"))) for column in columns),
            pa.field("_unreadable", pa.string()),
            pa.field("_wrong", reasons),
            pa.field("_unknown", pa.list_(pa.string())),
        ]
    )


def _arrow_type(kind: exp.DataType) -> pa.DataType:
    name = kind.this.value
    if name == "STRUCT":
        return pa.struct([pa.field(each.name, _arrow_type(each.args["kind"])) for each in kind.expressions])
    if name in ("ARRAY", "LIST"):
        return pa.list_(_arrow_type(kind.expressions[0]))
    if name == "MAP":
        return pa.map_(*map(_arrow_type, kind.expressions))
    if name == "DECIMAL":
        return pa.decimal128(*(int(each.name) for each in kind.expressions))
    return _LEAVES[name]


def decode(decoder: Decoder, *payloads: bytes | None) -> list[Decoded]:
    """Each payload decoded, all of them in one batch."""
    names = decoder.types.names[:-3]
    (read,) = decoder.batches(iter([pa.record_batch({"_raw": pa.array(payloads, pa.binary())})]))
    return [
        Decoded(
            {name: row[name] for name in names},
            row["_unreadable"],
            {name: reason for name, reason in (row["_wrong"] or {}).items() if reason is not None},
            tuple(row["_unknown"] or ()),
        )
        for row in read.drop_columns(["_raw"]).to_pylist()
    ]
