"""An alert that cannot be sent says so, and not what lets anybody send one."""

from __future__ import annotations

import traceback

import pytest

from platform_assets.demo.feeds import free_port
from platform_assets.errors import AlertNotSent
from platform_assets.events.alerts import send
from streaming.service.alerts import AlertStatus
from tests.support.http_server import http_server
from tests.support.pipelines.beats import pipeline

ALERT = AlertStatus("stream_is_up", False, "it failed", {})


def test_an_alert_that_is_not_taken_names_the_host_and_hides_the_rest_of_the_url() -> None:
    with http_server() as server:
        server.answer = lambda posted: 403
        url = f"{server.url}/hooks/sesame?with=sesame"
        with pytest.raises(
            AlertNotSent, match=r"http://127\.0\.0\.1:\d+ answers 403; correct TIDEMARK_ALERTS_TO"
        ) as no:
            send(url, pipeline, ALERT)
        assert "sesame" not in "".join(traceback.format_exception(no.value))
        server.answer = lambda posted: 200
        send(url, pipeline, ALERT)
    url = url.replace(server.url, f"http://127.0.0.1:{free_port()}")
    with pytest.raises(AlertNotSent, match="cannot be reached") as gone:
        send(url, pipeline, ALERT)
    assert "sesame" not in "".join(traceback.format_exception(gone.value))
