"""Secrets of the environment reach those that they are for, and are seen nowhere else."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from streaming import Lake
from tests.streaming.service.streams import jvm, process_of, supervised, until
from tests.support.http_server import http_server
from tests.support.pipelines.guarded import POLLED, TARGET, TOKEN, pipeline
from tests.support.servers import Answer, Asked, polled_server

pytestmark = pytest.mark.processes

SECRETS = {TOKEN: "Bearer hush-of-the-api", "TIDEMARK_SPARK_HADOOP_FS_S3A_SECRET_KEY": "hush-of-the-store"}


def holding(folder: Path) -> list[str]:
    """The files below a folder in which a secret is."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [str(path) for path in files if b"hush-of" in path.read_bytes()]


def command_lines() -> list[str]:
    """Of all processes that this one has started, directly or not, but for those that end meanwhile."""
    lines = []
    for each in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            lines.append(" ".join(each.cmdline()))
    return lines


@pytest.mark.long
def test_no_process_list_log_or_table_has_a_secret_of_a_running_pipeline(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str | None] = []

    def answer(request: Asked) -> Answer:
        asked.append(request.headers.get("Authorization"))
        return Answer(b'[{"n": 1}, {"n": "not a number"}]')

    with polled_server(answer) as polled, http_server() as target:
        for name, value in {**SECRETS, POLLED: polled.url, TARGET: target.url}.items():
            monkeypatch.setenv(name, value)
        with supervised(lake, pipeline) as supervisor:
            until(lambda: target.rows(), "delivered", lake)
            engine = process_of(supervisor)
            commands = command_lines()
            assert any("org.apache.spark" in command for command in commands)
            assert jvm(engine) and [command for command in commands if "hush-of" in command] == []
    # It came to those that it is for.
    assert set(asked) == {SECRETS[TOKEN]} == {posted.headers["Authorization"] for posted in target.posted}
    assert holding(tmp_path) == []
