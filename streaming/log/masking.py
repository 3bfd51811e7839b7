"""Masked values of judged rows: nothing that a stream masks goes from here into a table, a log or an error.

Both ways of ingest take their rows through this, after these are judged. It runs in Python workers, and imports nothing
that starts Spark.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.base import SaltError
from streaming.declare import MASKED, ORIGIN_TYPES, WITHHELD, Mask, MaskValue, Stream, check_of, nothing, salt_of
from streaming.formats import Format

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WAS_MASKED, BEFORE = "_was_masked", "_before"
"""Columns of rejected rows that come back: true for those whose values were masked, and their values of then."""
_SPOKEN = frozenset({"json: the payload is not UTF-8", "json: the payload is not one JSON object"})
"""Reasons against payloads that quote nothing of them; neither do those of CSV and of text."""
_SILENT = "cannot be read, and why is not told, as that may quote a masked value"


@dataclass(frozen=True)
class Masking:
    """The masks of one stream, with their salts.

    `values`: by the path of a column, what is kept in place of a value. `reason` tells of a rejected row how it was
    masked. `key` is that of the digest of a payload which is withheld, empty where no value is hashed and so none is
    told.
    """

    format: Format
    values: Mapping[str, MaskValue] = field(repr=False)
    reason: str
    key: bytes = field(repr=False)

    @classmethod
    def of(cls, stream: Stream) -> Masking | None:
        """The masks of a stream; None where it masks nothing.

        Raises:
            SettingsError: a salt is not set.
        """
        if not stream.masked:
            return None
        variables = [mask.variable for mask in stream.masked.values() if mask.variable is not None]
        values = {path: mask.resolved() for path, mask in stream.masked.items()}
        key = salt_of(variables[0]) if variables else b""
        return cls(stream.format, values, masked_reason(stream.masked), key)

    @cached_property
    def columns(self) -> frozenset[str]:
        """The columns of which a value, or a part of one, is masked."""
        return frozenset(path.partition(".")[0] for path in self._of_columns)

    @cached_property
    def _of_columns(self) -> Mapping[str, MaskValue]:
        return {path: mask for path, mask in self.values.items() if path not in ORIGIN_TYPES}

    def frames(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Batches of judged rows with masked values, in the columns that they have."""
        return map(self.rows, batches)

    def rows(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Judged rows with masked values; the payload of one is masked within, or left out where that is not certain.

        Of a rejected row the last reason names all masks, or tells that its payload is not there. Rows of which
        `_was_masked` is true stay as they are, where there is such a column.
        """
        if WAS_MASKED in rows.schema.names:
            done = rows.column(WAS_MASKED)
            order = pc.array_sort_indices(pc.if_else(done, 1, 0))
            open_ = self._all(rows.filter(pc.invert(done)))
            together = pa.Table.from_batches([open_, rows.filter(done)]).take(_inverse(order))
            return pa.RecordBatch.from_arrays([each.combine_chunks() for each in together.columns], schema=rows.schema)
        return self._all(rows)

    def _all(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        columns = dict(zip(rows.schema.names, rows.columns, strict=True))
        for path, mask in self.values.items():
            name, *within = path.split(".")
            columns[name] = _masked(columns[name], within, mask)
        columns["_raw"], columns["_rejected"] = self._payloads(columns["_raw"], columns["_rejected"])
        return pa.RecordBatch.from_arrays([*columns.values()], schema=rows.schema)

    def _payloads(self, raw: pa.Array, rejected: pa.Array) -> tuple[pa.Array, pa.Array]:
        places = np.flatnonzero(pc.or_(raw.is_valid(), rejected.is_valid()).to_numpy(zero_copy_only=False))
        if not len(places):
            return raw, rejected
        payloads, reasons = raw.to_pylist(), rejected.to_pylist()
        for place in places.tolist():
            payload = payloads[place]
            kept = None if payload is None else self._masked_payload(payload)
            payloads[place] = kept
            if reasons[place] is not None:
                is_withheld = payload is not None and kept is None
                reasons[place] = [*reasons[place], self._withheld(payload) if is_withheld else self.reason]
        return pa.array(payloads, raw.type), pa.array(reasons, rejected.type)

    def _masked_payload(self, payload: bytes) -> bytes | None:
        if not self._of_columns:
            return payload
        return self.format.masked_payload(payload, self._of_columns) if self.format.masks_payloads else None

    def _withheld(self, payload: bytes) -> str:
        """The reason that tells of a payload which is not there."""
        digest = f", hmac-sha256 {hmac.digest(self.key, payload, 'sha256').hex()}" if self.key else ""
        return f"{WITHHELD}: the payload of {len(payload)} bytes is not kept, as nobody can mask what is in it{digest}"


def masked(validated: DataFrame, stream: Stream) -> DataFrame:
    """Rows that `RowValidator` has judged, with masked values.

    Raises:
        SettingsError: a salt is not set.
    """
    masking = Masking.of(stream)
    return validated if masking is None else validated.mapInArrow(masking.frames, validated.schema)


def masked_reason(masks: Mapping[str, Mask]) -> str:
    """The last reason against a rejected row whose values are masked: each column with its mask, and no salt."""
    return f"{MASKED}: {', '.join(f'{path} by {mask}' for path, mask in sorted(masks.items()))}"


def checked_salts(stream: Stream, before: Mapping[str, str]) -> dict[str, str]:
    """The checks of the salts of a log after its next batch, by variable; `before` are those that it has by now.

    Raises:
        SettingsError: a salt is not set.
        SaltError: one is another than that by which values of the log were hashed.
    """
    named = {mask.variable: path for path, mask in stream.masked.items() if mask.variable is not None}
    checks = {variable: check_of(variable) for variable in named}
    for variable, check in checks.items():
        if before.get(variable, check) != check:
            raise SaltError(
                f"the variable {variable!r} has another salt than the one by which values of {named[variable]!r} in "
                f"the log of {stream.name!r} were hashed, so that equal values would not be equal any more",
                "give it its old value back; or, if another salt is meant from now on, name another variable in "
                "Hash(salt='${NAME}'). Nothing was appended.",
                stream=stream.name,
                field=variable,
            )
    return {**before, **checks}


def _inverse(order: pa.Array) -> pa.Array:
    """The places to which an order has brought each element."""
    places = np.empty(len(order), np.int64)
    places[order.to_numpy(zero_copy_only=False)] = np.arange(len(order))
    return pa.array(places)


def unquoted(reasons: pa.Array) -> pa.Array:
    """Reasons against payloads as a whole, without any that may quote what is in them."""
    if reasons.null_count == len(reasons):
        return reasons
    return pa.array([None if each is None else _unquoted(each) for each in reasons.to_pylist()], reasons.type)


def _unquoted(reason: str) -> str:
    form = reason.partition(": ")[0]
    return reason if reason in _SPOKEN or form in ("csv", "text") else silent_reason(form)


def silent_reason(form: str) -> str:
    """The reason against a payload that cannot be read, of which nothing is quoted."""
    return f"{form}: the payload {_SILENT}"


def spoken_reasons() -> Sequence[str]:
    """The reasons against payloads as a whole that quote nothing, but for those of CSV and text."""
    return sorted(_SPOKEN)


def wrong_value(name: str, *, required: bool) -> str:
    """The reason against a value of a masked column: it is missing, or is none of its type."""
    return f"required: {name} is missing" if required else f"type: {name}, which is masked, is not of its type"


def wrong_values(name: str, reasons: pa.Array) -> pa.Array:
    """Reasons against the values of a masked column, without the values; null where there is none."""
    required = pc.starts_with(reasons, "required: ")
    texts = (pa.scalar(wrong_value(name, required=each), reasons.type) for each in (True, False))
    return pc.if_else(required, *texts)


def _masked(values: pa.Array, within: Sequence[str], mask: MaskValue) -> pa.Array:
    """An array with what is kept of each value, or of the field of each that a path leads to, also within arrays."""
    type_ = values.type
    missing = values.is_null() if values.null_count else None
    if not within and mask is nothing:
        return pa.nulls(len(values), type_)
    if pa.types.is_list(type_):
        lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
        offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
        return pa.ListArray.from_arrays(offsets, _masked(values.flatten(), within, mask), type=type_, mask=missing)
    if within:
        fields = dict(zip((each.name for each in type_), values.flatten(), strict=True))
        fields[within[0]] = _masked(fields[within[0]], within[1:], mask)
        return pa.StructArray.from_arrays([*fields.values()], fields=list(type_), mask=missing)
    known = values.dictionary_encode()
    texts = known.dictionary.cast(pa.binary()).to_pylist()
    kept = [None if each is None else mask(each) for each in texts]
    is_text = pa.types.is_string(type_) or pa.types.is_large_string(type_)
    told = [None if each is None else each.decode() for each in kept] if is_text else kept
    return pa.array(told, type_).take(known.indices)
