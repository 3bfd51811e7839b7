"""The common parts of connectors to web servers: addresses, headers with secrets in them, and pauses."""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Mapping

import httpx

from streaming.base import DeclarationError, ReceiverError, check_type
from streaming.sources.receivers.connector import IDLE, Received


def check_url(of: str, url: str, schemes: tuple[str, ...]) -> None:
    """Refuse what is no URL of these schemes, and one with a password in it.

    Raises:
        DeclarationError: with the value.
    """
    example = f"'{schemes[-1]}://host/path'"
    check_type(f"url of {of}", url, str, f"a URL, such as {example}")
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise DeclarationError(f"url={url!r} of {of} cannot be read: {error}.") from error
    if parsed.scheme not in schemes or not parsed.host:
        raise DeclarationError(f"url={url!r} of {of} is no address; write {example}.")
    if parsed.userinfo:
        raise DeclarationError(
            f"the url of {of} to {parsed.host!r} has a user or password in it; send them with secret_headers="
            "{'Authorization': 'NAME_OF_A_VARIABLE'}."
        )


def all_headers(address: str, headers: Mapping[str, str], secret: Mapping[str, str]) -> dict[str, str]:
    """The `headers`, and the values that the environment has for the `secret` ones, by variable.

    Raises:
        ReceiverError: a variable is not set.
    """
    missing = sorted(variable for variable in secret.values() if variable not in os.environ)
    if missing:
        raise ReceiverError(f"{address} needs {', '.join(missing)} in the environment, which is not set; set it.")
    return {**headers, **{header: os.environ[variable] for header, variable in secret.items()}}


def on_one_line(payload: bytes) -> bytes:
    """The payload with spaces for line breaks, which JSON does not notice: a row of a file is a line."""
    return payload.replace(b"\r", b" ").replace(b"\n", b" ")


def pause(seconds: float) -> Generator[Received, None, None]:
    """Nothing for so long, told often enough for files that are due."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(IDLE, left))
        yield Received()
