"""Text: the whole payload is one value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from streaming.base import check_column_name, check_name, sql
from streaming.formats.decoder import Decoder, Row, Unreadable, arrow_types
from streaming.formats.format import Format


@dataclass(frozen=True)
class Text(Format):
    """The payload is one text in UTF-8, which becomes the column of this name.

    Raises:
        DeclarationError: the name is not allowed.
    """

    column: str = "value"

    def __post_init__(self) -> None:
        check_column_name(self.column)
        check_name("column", self.column)

    @property
    def columns(self) -> tuple[sql.Column, ...]:
        """The one column."""
        return (sql.Column(self.column, "string", required=False),)

    @property
    def decoder(self) -> Decoder:
        """The reader of its texts; what is no UTF-8 cannot be read, and everything else can."""
        return TextDecoder((self.column,), arrow_types(self.columns), None)

    @property
    def masks_payloads(self) -> bool:
        return True

    def masked_payload(self, payload: bytes, masks: Mapping[str, Callable[[bytes], bytes | None]]) -> bytes | None:
        """As the contract says: the payload is the value."""
        return masks[self.column](payload) if self.column in masks else payload


class TextDecoder(Decoder):
    """Takes each payload as the text that it is."""

    @property
    def name(self) -> str:
        return "text"

    def arrays(self, payloads: pa.BinaryArray, client: Any) -> list[pa.Array]:
        """All payloads at once where each is UTF-8."""
        try:
            texts = payloads.cast(pa.string())
        except pa.ArrowInvalid:
            return super().arrays(payloads, client)
        return [texts, *(pa.nulls(len(texts), each.type) for each in [*self.types][1:])]

    def row(self, content: bytes, identity: int | None, client: Any) -> Row:
        try:
            return Row([content.decode()])
        except UnicodeDecodeError:
            raise Unreadable("the payload is not UTF-8") from None
