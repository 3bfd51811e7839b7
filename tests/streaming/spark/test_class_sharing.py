from __future__ import annotations

from pathlib import Path

import pytest

from streaming.operations.class_sharing import make_class_archive
from streaming.spark.class_sharing import archive_options, archive_path


def test_without_an_archive_the_jvm_gets_no_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_JARS", str(tmp_path))
    assert archive_options() == ""


def test_an_archive_that_is_there_is_used_and_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_JARS", str(tmp_path))
    path = archive_path()
    assert path is not None
    path.write_bytes(b"made before")
    assert make_class_archive()
    assert path.read_bytes() == b"made before"
    assert f"-XX:SharedArchiveFile={path}" in archive_options()


def test_without_a_java_there_is_no_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert (archive_path(), archive_options(), make_class_archive()) == (None, "", False)
