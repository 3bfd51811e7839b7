"""URLs for people to see."""

from __future__ import annotations

from urllib.parse import urlsplit


def host_of(url: str) -> str:
    """Scheme, host and port: the rest of a URL may be all that it takes to be let in."""
    try:
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.hostname or ''}{'' if parts.port is None else f':{parts.port}'}"
    except ValueError:
        return "a URL that cannot be read"
