"""Formats: from a payload to typed columns, and what could not be read."""

from streaming.formats.format import UNKNOWN, UNREADABLE, WRONG, Format
from streaming.formats.json import Json

__all__ = [
    "UNKNOWN",
    "UNREADABLE",
    "WRONG",
    "Format",
    "Json",
]
