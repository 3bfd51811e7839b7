from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path
from urllib.parse import quote

import pytest

from streaming.sources.landed_files import FilesBacklog, TakenFiles, relative_path
from streaming.sources.source import SourceBacklog

MODIFIED = 1_700_000_000_123
"""Milliseconds since the epoch."""


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    return tmp_path / "landing"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


def backlog_of(landing: Path, checkpoint: Path) -> FilesBacklog:
    return FilesBacklog(str(landing), str(checkpoint))


def landed(landing: Path, *names: str, modified: int = MODIFIED) -> None:
    for name in names:
        file = landing / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("four")
        os.utime(file, ns=(modified * 1_000_000, modified * 1_000_000))


def taken(landing: Path, checkpoint: Path, batch: int, *names: str, compact: bool = False) -> None:
    """An entry of the file source's log, as Spark writes it: paths are URL-encoded."""
    sources = checkpoint / "sources" / "0"
    sources.mkdir(parents=True, exist_ok=True)
    paths = [f"file://{quote(str(landing / name))}" for name in names]
    entries = [json.dumps({"path": path, "timestamp": MODIFIED, "batchId": batch}) for path in paths]
    (sources / f"{batch}{'.compact' if compact else ''}").write_text("\n".join(["v1", *entries]))


def waiting(files: int) -> SourceBacklog:
    return SourceBacklog(files, "files", 4 * files)


def test_files_wait_until_a_batch_takes_them_and_hidden_ones_do_not(landing: Path, checkpoint: Path) -> None:
    backlog = backlog_of(landing, checkpoint)
    assert backlog.count() == waiting(0)

    landed(landing, "a.json", "b and c.json", ".hidden", "_hidden")
    assert backlog.count() == waiting(2)
    taken(landing, checkpoint, 0, "b and c.json")
    assert backlog.count() == waiting(1)
    taken(landing, checkpoint, 1, "a.json")
    assert backlog.count() == waiting(0)


def test_files_of_one_name_in_two_folders_are_two_files(landing: Path, checkpoint: Path) -> None:
    landed(landing, "a.json", "east/a.json", "west/a.json", "_done/a.json", ".partial/a.json")
    backlog = backlog_of(landing, checkpoint)
    assert backlog.count() == waiting(3)
    taken(landing, checkpoint, 0, "east/a.json")
    assert backlog.count() == waiting(2)


def test_a_file_delivered_again_under_its_name_is_named_even_if_it_was_away_meanwhile(
    landing: Path, checkpoint: Path
) -> None:
    landed(landing, "a.json", "b.json")
    taken(landing, checkpoint, 0, "a.json", "b.json")
    backlog = backlog_of(landing, checkpoint)
    assert backlog.count() == waiting(0)

    (landing / "a.json").unlink()
    assert backlog.count() == waiting(0)
    landed(landing, "a.json", modified=MODIFIED + 1)
    again = backlog.count()
    assert (again.items, again.size) == (0, 0)
    assert again.warning == (
        "Changed, or delivered again under the same name, after it was read: a.json. A file is read once: deliver what "
        "was added or corrected as a new file under a new name."
    )
    landed(landing, "a.json", modified=MODIFIED)
    assert backlog.count() == waiting(0), "the file that was read may come back"


def test_a_stream_that_has_run_for_long_is_known_by_its_newest_compaction(landing: Path, checkpoint: Path) -> None:
    landed(landing, "a.json", "b.json", "c.json")
    taken(landing, checkpoint, 9, "a.json", compact=True)
    taken(landing, checkpoint, 10, "b.json")
    backlog = backlog_of(landing, checkpoint)
    assert backlog.count() == waiting(1)
    taken(landing, checkpoint, 11, "c.json")
    assert backlog.count() == waiting(0)


def test_who_has_slept_while_entries_were_deleted_goes_on_with_the_newest_compaction(
    landing: Path, checkpoint: Path
) -> None:
    landed(landing, "a.json", "b.json", "c.json", "d.json")
    taken(landing, checkpoint, 0, "a.json")
    backlog = backlog_of(landing, checkpoint)
    assert backlog.count() == waiting(3)
    (checkpoint / "sources" / "0" / "0").unlink()
    taken(landing, checkpoint, 9, "a.json", "b.json", compact=True)
    taken(landing, checkpoint, 10, "c.json")
    assert backlog.count() == waiting(1)


def test_sixteen_bytes_are_kept_of_a_file_that_was_taken(landing: Path, checkpoint: Path) -> None:
    names = [f"{number:06}.json" for number in range(1_000)]
    taken(landing, checkpoint, 0, *names)
    files = TakenFiles(str(landing), str(checkpoint))
    tracemalloc.start()
    files.read_on()
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert files.modified([names[0], "other.json", names[-1]]) == [MODIFIED, None, MODIFIED]
    assert kept < 16 * 1_000 + 8_000


@pytest.mark.parametrize(
    ("declared", "written"),
    [
        ("/lake/landing", "file:///lake/landing/a.json"),
        ("file:///lake/landing/", "file:///lake/landing/a.json"),
        ("s3a://bucket/landing", "s3a://bucket/landing/a.json"),
        ("hdfs://name:8020/landing", "hdfs://name:8020/landing/a.json"),
    ],
)
def test_a_path_is_told_relative_to_the_landing_folder_on_any_storage(declared: str, written: str) -> None:
    assert relative_path(written, declared) == "a.json"
