"""URLs for people to see, and the time for which a server asks to be left alone."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit


def host_of(url: str) -> str:
    """Scheme, host and port: the rest of a URL may be all that it takes to be let in."""
    try:
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.hostname or ''}{'' if parts.port is None else f':{parts.port}'}"
    except ValueError:
        return "a URL that cannot be read"


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds of the header `Retry-After`, a number or a date (RFC 9110, section 10.2.3); None where it is neither."""
    text = headers.get("Retry-After", "")
    if text.isdigit():
        return float(text)
    try:
        return max(0.0, (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return None
