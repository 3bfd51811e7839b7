"""Payloads in JSON to values, in the Python workers of Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from streaming.base import sql
from streaming.formats.decoder import Decoder, Row
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

    def row(self, content: bytes, identity: int | None, client: Any) -> Row:
        return self._read(object_of(content))

    @cached_property
    def _read(self) -> Callable[[Any], Row]:
        return reader_of(self.declared, self.fields)
