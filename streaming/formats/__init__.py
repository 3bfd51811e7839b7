"""Formats: from a payload to typed columns, and what could not be read."""

from streaming.formats.format import UNKNOWN, UNREADABLE, WRONG
from streaming.formats.json import Json

__all__ = [
    "UNKNOWN",
    "UNREADABLE",
    "WRONG",
    "Json",
]
