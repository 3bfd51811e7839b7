"""URLs for people to see, and the time for which a server asks to be left alone."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from streaming.base.argument_checks import check_type
from streaming.base.errors import DeclarationError

SECRET_HEADERS = "send them with secret_headers={'Authorization': 'NAME_OF_A_VARIABLE'}"
"""The place of a password in what is sent to a server by HTTP."""


def host_of(url: str) -> str:
    """Scheme, host and port: the rest of a URL may be all that it takes to be let in."""
    try:
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.hostname or ''}{'' if parts.port is None else f':{parts.port}'}"
    except ValueError:
        return "a URL that cannot be read"


def check_url(
    of: str, url: object, example: str, *, instead: str, schemes: tuple[str, ...] = ("http", "https")
) -> None:
    """Refuse what is no URL of these schemes, and one with a user or password in it.

    `of` is who has it, `instead` says where a password belongs. Nothing of it is told but scheme, host and port.

    Raises:
        DeclarationError: with what to write.
    """
    # A pipeline without an HTTP client need not load one.
    import httpx

    check_type(f"url of {of}", url, str, f"a URL, such as '{example}'")
    assert isinstance(url, str)
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        # Without the cause, which may name a part of a password.
        raise DeclarationError(f"the url of {of} cannot be read; write '{example}'.") from None
    if parsed.scheme not in schemes or not parsed.host:
        raise DeclarationError(f"the url of {of} ({host_of(url)}) is no address; write '{example}'.")
    if parsed.userinfo:
        raise DeclarationError(f"the url of {of} to {parsed.host!r} has a user or password in it; {instead}.")


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
