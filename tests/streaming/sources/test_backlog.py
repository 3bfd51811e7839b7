from __future__ import annotations

import json
from pathlib import Path

from streaming.sources.backlog import FilesBacklog, SourceBacklog


def landed(landing: Path, *names: str) -> None:
    landing.mkdir(exist_ok=True)
    for name in names:
        (landing / name).write_text("four")


def taken(checkpoint: Path, batch: int, *names: str, compact: bool = False) -> None:
    """An entry of the file source's log, as Spark writes it: paths are URL-encoded."""
    sources = checkpoint / "sources" / "0"
    sources.mkdir(parents=True, exist_ok=True)
    entries = [json.dumps({"path": f"file:///landing/{name}", "timestamp": 1, "batchId": batch}) for name in names]
    (sources / f"{batch}{'.compact' if compact else ''}").write_text("\n".join(["v1", *entries]))


def test_files_wait_until_a_batch_takes_them_and_hidden_ones_are_none(tmp_path: Path) -> None:
    landing, checkpoint = tmp_path / "landing", tmp_path / "checkpoint"
    backlog = FilesBacklog(str(landing), str(checkpoint))
    assert backlog.count() == SourceBacklog(0, 0)

    landed(landing, "a.json", "b and c.json", ".hidden", "_hidden")
    assert backlog.count() == SourceBacklog(2, 8)
    taken(checkpoint, 0, "b%20and%20c.json")
    assert backlog.count() == SourceBacklog(1, 4)
    taken(checkpoint, 1, "a.json")
    assert backlog.count() == SourceBacklog(0, 0)


def test_a_stream_that_has_run_for_long_is_known_by_its_newest_compaction(tmp_path: Path) -> None:
    landing, checkpoint = tmp_path / "landing", tmp_path / "checkpoint"
    landed(landing, "a.json", "b.json", "c.json")
    taken(checkpoint, 9, "a.json", compact=True)
    taken(checkpoint, 10, "b.json")
    backlog = FilesBacklog(str(landing), str(checkpoint))
    assert backlog.count() == SourceBacklog(1, 4)
    taken(checkpoint, 11, "c.json")
    assert backlog.count() == SourceBacklog(0, 0)


def test_who_has_slept_while_entries_were_deleted_goes_on_with_the_newest_compaction(tmp_path: Path) -> None:
    landing, checkpoint = tmp_path / "landing", tmp_path / "checkpoint"
    landed(landing, "a.json", "b.json", "c.json", "d.json")
    taken(checkpoint, 0, "a.json")
    backlog = FilesBacklog(str(landing), str(checkpoint))
    assert backlog.count() == SourceBacklog(3, 12)
    (checkpoint / "sources" / "0" / "0").unlink()
    taken(checkpoint, 9, "a.json", "b.json", compact=True)
    taken(checkpoint, 10, "c.json")
    assert backlog.count() == SourceBacklog(1, 4)
