"""Metrics and latest values are for this machine alone, or for whoever has the token; encrypted where declared."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from streaming.base.access import Access
from streaming.base.errors import AccessError, DeclarationError
from streaming.base.intervals import utc_now
from streaming.lake.lake import Lake
from streaming.service.serving import LatestValues, serve
from tests.support.certificates import self_signed

TOKEN = "s3cr3t-of-metrics"


@contextmanager
def serving(lake: Lake, access: Access) -> Iterator[int]:
    """The port of a server of no pipeline."""
    server = serve(0, CollectorRegistry(), LatestValues(lake, dict, utc_now), access)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_nobody_is_answered_without_the_token_and_everybody_with_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = Access("metrics", "0.0.0.0", "METRICS_TOKEN")
    with pytest.raises(AccessError, match="metrics needs METRICS_TOKEN in the environment"):
        serve(0, CollectorRegistry(), LatestValues(lake, dict, utc_now), access)
    monkeypatch.setenv("METRICS_TOKEN", TOKEN)
    with serving(lake, access) as port, httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        for path in ("/metrics", "/latest", "/", "/latest/a/b?c=d"):
            for header in ("", TOKEN, f"Basic {TOKEN}", "Bearer", "Bearer x", f"Bearer {TOKEN}x", "Bearer \xfc"):
                refused = client.get(path, headers=[(b"Authorization", header.encode("latin-1"))] if header else [])
                assert (refused.status_code, refused.headers["WWW-Authenticate"]) == (401, "Bearer"), (path, header)
                assert TOKEN not in refused.text
        # Whoever has the token may ask under any name of the machine.
        allowed = {"Authorization": f"Bearer {TOKEN}", "Host": "metrics.example"}
        assert [client.get(path, headers=allowed).status_code for path in ("/metrics", "/latest")] == [200, 200]


def test_without_a_token_only_names_of_this_machine_are_answered(lake: Lake) -> None:
    with serving(lake, Access("metrics")) as port, httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        for path in ("/metrics", "/latest"):
            assert client.get(path).status_code == 200
            assert client.get(path, headers={"Host": f"localhost:{port}"}).status_code == 200
            for name in ("rebound.example", "127.0.0.1.example", "[", ""):
                assert client.get(path, headers={"Host": name}).status_code == 400, name


def test_with_a_certificate_only_tls_is_spoken_and_a_silent_connection_holds_up_no_other(
    lake: Lake, tmp_path: Path
) -> None:
    own = self_signed(tmp_path)
    with serving(lake, Access("metrics", certificate=str(own))) as port:
        silent = socket.create_connection(("127.0.0.1", port))
        with pytest.raises(httpx.HTTPError):
            httpx.get(f"http://127.0.0.1:{port}/metrics")
        trusting = ssl.create_default_context(cafile=str(own))
        assert httpx.get(f"https://127.0.0.1:{port}/metrics", verify=trusting).status_code == 200
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx.get(f"https://127.0.0.1:{port}/metrics")
        silent.close()
    with pytest.raises(AccessError, match=r"none\.pem' and key=None of metrics cannot be used"):
        serve(0, CollectorRegistry(), LatestValues(lake, dict, utc_now), Access("metrics", certificate="none.pem"))


@given(st.one_of(st.ip_addresses().map(str), st.text(max_size=20)))
def test_nothing_listens_beyond_this_machine_without_a_token(host: str) -> None:
    beyond = not (host.startswith("127.") or host in ("localhost", "::1"))
    try:
        Access("metrics", host)
    except DeclarationError:
        # A text that only begins like such an address is none.
        beyond = True
    else:
        assert not beyond
    assert Access("metrics", host, "A_TOKEN").host == host
