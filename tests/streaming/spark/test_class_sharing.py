from __future__ import annotations

from pathlib import Path

import pytest

from streaming.operations.class_sharing import make_class_archive, make_class_archive_later
from streaming.spark.class_sharing import archive_options, archive_path
from tests.support.waiting import until


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


def test_a_missing_archive_is_made_by_a_process_of_its_own_which_is_started_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMARK_JARS", str(tmp_path))
    path = archive_path()
    assert path is not None
    # Java itself is tried by whoever makes an archive; here it is enough who is asked to.
    asked = tmp_path / "asked"
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, pathlib\n"
        f"asked = pathlib.Path({str(asked)!r})\n"
        "if 'make_class_archive()' in ' '.join(sys.orig_argv):\n"
        "    asked.write_text(asked.read_text() + 'once' if asked.exists() else 'once')\n"
        "    sys.exit()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert make_class_archive_later()
    until(asked.exists, "the process has started")
    assert not make_class_archive_later()
    assert asked.read_text() == "once"
    path.with_suffix(".tried").unlink()
    path.write_bytes(b"made by then")
    assert not make_class_archive_later()


def test_without_a_java_there_is_no_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert (archive_path(), archive_options(), make_class_archive()) == (None, "", False)
