"""Who may connect to what listens here: from where, with which token, and whether the connection is encrypted."""

from __future__ import annotations

import hmac
import os
import socket
import ssl
from dataclasses import dataclass
from ipaddress import ip_address

from streaming.base.argument_checks import check_type
from streaming.base.errors import AccessError, DeclarationError

LOOPBACK = "127.0.0.1"
"""Where everything listens unless it is told otherwise: nobody but this machine reaches it."""


@dataclass(frozen=True)
class Access:
    """Access to whatever is called `of`; the values are those its user gave, by the same names.

    `host` is the address to listen on. `token` names a variable of the environment; whoever connects must say what it
    holds. `certificate` is a PEM file of the certificate and those who signed it, `key` one of its key, where that is
    not in the same file; with them every connection is encrypted.

    Raises:
        DeclarationError: others than this machine could connect without a token, or a key is given without certificate.
    """

    of: str
    host: str = LOOPBACK
    token: str | None = None
    certificate: str | None = None
    key: str | None = None

    def __post_init__(self) -> None:
        check_type(f"host of {self.of}", self.host, str, "an address of this machine, such as '127.0.0.1'")
        for name, advice in (
            ("token", "the name of a variable of the environment"),
            ("certificate", "the name of a PEM file"),
            ("key", "the name of a PEM file"),
        ):
            check_type(f"{name} of {self.of}", getattr(self, name), (str, type(None)), advice)
        if self.token is None and not is_loopback(self.host):
            raise DeclarationError(
                f"host={self.host!r} of {self.of} lets in anybody who reaches this machine",
                "name a variable of the "
                "environment that holds what clients must say, token='NAME_OF_A_VARIABLE', or listen on '127.0.0.1'.",
                field="host",
                value=self.host,
            )
        if self.key is not None and self.certificate is None:
            raise DeclarationError(
                f"key={self.key!r} of {self.of} encrypts nothing without a certificate",
                "name that too, or leave it out.",
                field="key",
                value=self.key,
            )

    @property
    def family(self) -> socket.AddressFamily:
        """The address family of `host`."""
        return socket.AF_INET6 if ":" in self.host else socket.AF_INET

    def secret(self) -> bytes | None:
        """The secret that clients must present; None where they need none.

        Raises:
            AccessError: the variable is not set.
        """
        if self.token is None:
            return None
        value = os.environ.get(self.token)
        if not value:
            raise AccessError(f"{self.of} needs {self.token} in the environment, which is not set", "set it.")
        return value.encode()

    def encryption(self) -> ssl.SSLContext | None:
        """The TLS context that encrypts connections, from TLS 1.2 on; None where nothing is encrypted.

        Raises:
            AccessError: a file is not there, or is no certificate or key.
        """
        if self.certificate is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # A client that only sends never reads a ticket, and what it leaves unread resets the connection at its end.
        context.num_tickets = 0
        try:
            # Without a password OpenSSL would ask for one on the terminal, and a service would hang.
            context.load_cert_chain(self.certificate, self.key, password="")
        except (OSError, ValueError) as error:
            raise AccessError(
                f"certificate={self.certificate!r} and key={self.key!r} of {self.of} cannot be used ({error})",
                "name PEM files of a certificate and of its key, without a password.",
                field="certificate",
                value=self.certificate,
            ) from error
        return context


def is_told(token: bytes, secret: bytes) -> bool:
    """True if the token of a client is the secret; the duration of the comparison does not tell where they differ."""
    return hmac.compare_digest(token, secret)


def is_loopback(host: str) -> bool:
    """True if an address or name is this machine's own, which no other machine reaches."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
