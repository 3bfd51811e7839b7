"""Formats: from a payload to typed columns, and what could not be read."""

from streaming.formats.json import (
    Json,
)

__all__ = [
    "Json",
]
