"""Ports that servers are given."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from platform_assets.demo.feeds import free_port, free_ports
from streaming.base.errors import FeedError


def test_no_server_is_given_a_port_that_the_system_may_give_to_somebody_else() -> None:
    first_ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = free_ports(100)
    assert len(set(ports)) == 100
    assert max(ports) < first_ephemeral


def test_a_port_on_which_somebody_listens_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", free_port())), pytest.raises(FeedError, match="stop servers"):
        free_ports(32_768 - 20_000)
