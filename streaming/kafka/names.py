"""The names of brokers and topics in declarations."""

from __future__ import annotations

import re

from streaming.base import DeclarationError, check_type

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_SERVER = re.compile(r"\S+:[0-9]+")


def check_servers(what: str, servers: str) -> None:
    """Refuse what is not hosts and ports with commas between them.

    Raises:
        DeclarationError: with what to write.
    """
    check_type(f"servers of {what}", servers, str, "host and port, such as 'localhost:9092'")
    if not all(_SERVER.fullmatch(server.strip()) for server in servers.split(",")):
        raise DeclarationError(f"servers={servers!r} are no hosts and ports; write them as 'localhost:9092'.")


def can_name_a_topic(name: str) -> bool:
    """True if brokers take the name for a topic."""
    return _TOPIC.fullmatch(name) is not None and name not in (".", "..")
