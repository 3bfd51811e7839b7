"""Files that a run has published are served by Dagster's own webserver."""

from __future__ import annotations

import re

import dagster as dg
import pytest
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import EmptyWorkspaceTarget
from dagster_webserver.webserver import DagsterWebserver
from matplotlib.figure import Figure
from starlette.testclient import TestClient

from platform_assets.events.files import chart_metadata, file_links
from platform_assets.reports.files import as_png

SHOWN_AT_ONCE = 1000
"""Characters of Markdown beyond which the UI shows a text on a click only."""


@pytest.fixture(scope="module")
def picture() -> bytes:
    figure = Figure(figsize=(15, 5), dpi=100)
    figure.add_subplot().plot([1, 2])
    return as_png(figure)


def test_the_chart_is_short_enough_to_be_shown_at_once_and_links_lead_to_the_files(picture: bytes) -> None:
    with dg.instance_for_test() as instance:
        links = file_links(instance, "run-1", {"delays.csv": b"day\n1\n", "delays.png": picture})
        metadata = {
            name: str(value.value)
            for name, value in (links | chart_metadata(instance, "run-1", "delays.png", picture)).items()
        }
        with WorkspaceProcessContext(instance, EmptyWorkspaceTarget()) as workspace:
            client = TestClient(DagsterWebserver(workspace).create_asgi_app())
            served = {
                name: client.get(address).content
                for name, address in re.findall(r"\[([^]]+)]\(([^)]+)\)", f"{metadata['files']} {metadata['chart']}")
            }
    assert all(len(text) < SHOWN_AT_ONCE for text in metadata.values())
    assert (served["delays.csv"], served["delays.png"]) == (b"day\n1\n", picture)
    assert served["delays"].startswith(b"\x89PNG") and len(served["delays"]) < len(picture)


def test_where_dagster_keeps_its_logs_elsewhere_the_text_carries_the_chart(
    instance: dg.DagsterInstance, picture: bytes
) -> None:
    assert file_links(instance, "run-1", {"delays.csv": b""}) == {}
    assert str(chart_metadata(instance, "run-1", "delays.png", picture)["chart"].value).startswith(
        "![delays](data:image/png;base64,"
    )
