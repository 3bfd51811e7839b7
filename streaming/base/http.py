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


def password_in(uri: str) -> str:
    """The password in a URI, which ends at its last `@`, for it may have a slash in it; empty where there is none."""
    return uri.partition("://")[2].rpartition("@")[0].partition(":")[2]


def place_in(uri: str) -> str:
    """A URI without its user, password and query, nor the container that `abfs` has in the place of a user."""
    scheme, sign, rest = uri.partition("://")
    return f"{scheme}{sign}{rest.rpartition('@')[2]}".partition("?")[0]


def is_only_place(uri: str) -> bool:
    """True if a URI of a store has no user, password or query, any of which may be a secret."""
    scheme, _, rest = uri.partition("://")
    has_user = "@" in rest.partition("/")[0] and not scheme.lower().startswith("abfs")
    return not (password_in(uri) or has_user or "?" in uri)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds of the header `Retry-After`, a number or a date (RFC 9110, section 10.2.3); None where it is neither."""
    text = headers.get("Retry-After", "")
    if text.isdigit():
        return float(text)
    try:
        return max(0.0, (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return None
