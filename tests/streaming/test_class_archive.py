from __future__ import annotations

from pathlib import Path

import pytest

from streaming.class_archive import archive_options, archive_path, make_archive


def test_without_an_archive_the_jvm_gets_no_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_JARS", str(tmp_path))
    assert archive_options() == ""


def test_an_archive_that_is_there_is_used_and_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_JARS", str(tmp_path))
    archive_path().write_bytes(b"made before")
    assert make_archive()
    assert archive_path().read_bytes() == b"made before"
    assert f"-XX:SharedArchiveFile={archive_path()}" in archive_options()
