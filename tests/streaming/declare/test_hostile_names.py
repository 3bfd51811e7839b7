"""No name leaves the lake, ends a quotation, or reaches a terminal or a broker as something else than a name."""

from __future__ import annotations

import posixpath
from datetime import UTC, datetime
from pathlib import Path
from string import ascii_letters, digits

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from platform_assets.cli.selection import Selection, _key
from streaming import Ascending, Files, Json, Pipeline, Stream, Tumbling, Windowed, agg
from streaming.base import columns_of, names_in
from streaming.base.errors import DeclarationError, SavepointError
from streaming.base.names import check_column_name
from streaming.kafka import can_name_a_topic
from streaming.lake.lake import Lake
from streaming.operations.savepoint import Savepoint, drop_savepoint

NASTY = st.one_of(
    st.text(max_size=12),
    st.text(alphabet="ab_.`'\"\\/;-*?[]{}$% \n\r\t\0\x1b", max_size=12),
    st.sampled_from(
        ["..", "../up", "a/../../b", "a\n", "a;drop table b", "a`b", "/etc/passwd", "s3://a", "~", "$(id)"]
    ),
)


@given(NASTY)
def test_the_tables_of_whatever_can_be_declared_lie_in_its_folder_of_the_lake(name: str) -> None:
    lake = Lake("/lake")
    try:
        stream = Stream(name, Files("landing/x"), Json("id string, at timestamp"), "at", Ascending())
        view = Windowed(name, stream, Tumbling("1 hour"), {"rows": agg.count()})
        pipeline = Pipeline(name=name, streams=(stream,), operators=(view,))
    except DeclarationError:
        return
    assert name.isascii() and name.isidentifier() and name == name.lower()
    places = (lake.log(stream), lake.table(view), lake.checkpoint(stream, "log"), lake.savepoint(pipeline, "s"))
    for place in places:
        assert posixpath.normpath(place) == place and place.startswith("/lake/") and name in place.split("/")


@given(NASTY)
@example("a``b")
def test_the_name_of_a_column_stands_between_backticks_as_it_is_and_ends_no_quotation(name: str) -> None:
    try:
        check_column_name(name)
    except DeclarationError:
        return
    assert names_in(f"`{name}`") == {name}
    (column,) = columns_of(f"`{name}` string")
    assert (column.name, column.type) == (name, "string")


@given(NASTY)
def test_the_name_of_a_topic_is_one_that_no_path_url_or_option_reads(name: str) -> None:
    if can_name_a_topic(name):
        assert name not in ("", ".", "..") and set(name) <= {*ascii_letters, *digits, *"._-"}


@given(NASTY, NASTY)
def test_what_is_asked_for_as_a_key_is_compared_and_never_read_as_sql(name: str, value: str) -> None:
    asked = _key(("id", "at"), f"{name}={value}")
    parts = [part.partition("=") for part in f"{name}={value}".split(",")]
    expected = {n.strip(): v for n, _, v in parts} if all(e for _, e, _ in parts) else {"id": f"{name}={value}"}
    assert asked == expected
    assert Selection(key=value).where is None


@pytest.mark.parametrize("asked", ["../../theirs/_savepoints/first", "..", "", "/etc"])
def test_no_savepoint_of_another_pipeline_is_found_or_dropped_by_a_path(tmp_path: Path, asked: str) -> None:
    lake = Lake(str(tmp_path))
    ours, theirs = (
        Pipeline(stream, (Windowed(f"{name}_by_hour", stream, Tumbling("1 hour"), {"rows": agg.count()}),))
        for name in ("ours", "theirs")
        for stream in (Stream(name, Files("landing/x"), Json("id string, at timestamp"), "at", Ascending()),)
    )
    Savepoint("first", "theirs", datetime(2026, 1, 1, tzinfo=UTC), {}, {}, (), {}).write(lake, theirs)
    Path(lake.savepoint(ours, "")).mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(SavepointError, match="pipeline 'ours' has no savepoint"):
        drop_savepoint(lake, ours, asked)
    assert sorted(tmp_path.rglob("*")) == before
