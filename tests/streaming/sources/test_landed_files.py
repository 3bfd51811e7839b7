"""The listing of a landing folder without Spark: each file under one path, and nothing that cannot be read."""

from __future__ import annotations

import os
from pathlib import Path

from streaming.sources.landed_files import listing_of, undecoded_names


def names_in(folder: Path) -> list[str]:
    return sorted(file.name for file in listing_of(str(folder)).files)


def test_a_link_that_leads_nowhere_and_a_pipe_are_no_files_and_keep_none_from_being_listed(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("a")
    for link, nowhere in {"gone": "nowhere", "itself": "itself", "below": "a.json/b"}.items():
        (tmp_path / link).symlink_to(nowhere)
    os.mkfifo(tmp_path / "pipe")
    assert names_in(tmp_path) == ["a.json"]


def test_a_file_is_listed_by_its_own_path_whatever_links_lead_there_and_when_they_came(tmp_path: Path) -> None:
    landing, other = tmp_path / "landing", tmp_path / "other"
    for file in (landing / "m" / "deep" / "a.json", landing / "z" / "b.json", other / "c.json"):
        file.parent.mkdir(parents=True)
        file.write_text("x")
    (landing / "y").symlink_to(other)
    own = ["m/deep/a.json", "y/c.json", "z/b.json"]
    assert names_in(landing) == own
    for link, leads in {"a": landing / "z", "m/a": landing / "z", "m/deep/up": landing, "z/m": landing / "m"}.items():
        (landing / link).symlink_to(leads)
        assert names_in(landing) == own
    (landing / "yy").symlink_to(other)
    assert names_in(landing) == own


def test_names_that_are_no_utf_8_are_told_by_their_bytes_and_no_other_storage_is_asked_for_any(tmp_path: Path) -> None:
    for name in (b"b\xff.json", b"\xc3.json", b"_h\xff.json", "ü.json".encode()):
        (tmp_path / os.fsdecode(name)).write_text("x")
    assert names_in(tmp_path) == ["ü.json"]
    assert undecoded_names(str(tmp_path)) == (r"\xc3.json", r"b\xff.json")
    assert undecoded_names("s3a://nobody/landing") == ()
