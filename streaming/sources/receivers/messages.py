"""The common parts of connectors to brokers of messages: the payload in an envelope, and secrets."""

from __future__ import annotations

import base64
import os

from streaming.base import ReceiverError


def payload_fields(payload: bytes | bytearray) -> dict[str, str]:
    """The payload as a field of an envelope: `payload`, or `payload_base64` where it is no UTF-8."""
    try:
        return {"payload": payload.decode()}
    except UnicodeDecodeError:
        return {"payload_base64": base64.b64encode(payload).decode()}


def secret(address: str, variable: str) -> str:
    """The value of a variable of the environment.

    Raises:
        ReceiverError: it is not set.
    """
    if variable not in os.environ:
        raise ReceiverError(f"{address} needs {variable} in the environment, which is not set; set it.")
    return os.environ[variable]
