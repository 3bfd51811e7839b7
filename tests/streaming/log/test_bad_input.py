"""Input that is not as it should be: a rejected row or a clear error, and nothing is lost."""

from __future__ import annotations

import itertools
import shutil
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

from docs.examples.late_counts import count_by_sensor, pipeline
from docs.examples.late_counts import readings as stream
from streaming import (
    BoundedOutOfOrderness,
    Files,
    Json,
    Pipeline,
    Rule,
    SessionWindow,
    Stream,
    Tumbling,
    Windowed,
    agg,
    drain,
    epoch_millis,
    log,
)
from streaming.audit.laws import audit
from streaming.base.errors import LogError, SourceError
from streaming.lake.lake import Lake
from streaming.views.corrections import correct, read_corrections
from tests.support.feeds import land, land_all, readings
from tests.support.instants import NOW, T0, at
from tests.support.runs import read_current, run, tuples

MEGABYTES_10 = 10 * 1024 * 1024
BINARY = bytes(byte for byte in range(256) if byte not in b"\r\n")
JSON_NOT_UTF8, JSON_NOT_ONE = "json: the payload is not UTF-8", "json: the payload is not one JSON object"

notes = Stream(
    name="notes",
    source=Files("landing/notes", files_per_batch=20),
    format=Json("id string not null, ts bigint not null, note string"),
    derived={"event_time": epoch_millis("ts")},
    event_time="event_time",
    clock=BoundedOutOfOrderness("0 seconds"),
)
notes_by_day = Windowed("notes_by_day", of=notes, window=Tumbling("1 day"), aggregates={"notes": agg.count()})

FILES: dict[str, bytes] = {
    "empty": b"",
    "binary": BINARY,
    "byte_order_mark": b'\xef\xbb\xbf{"id":"bom","ts":1}\n',
    "long_line": b'{"id":"' + b"x" * MEGABYTES_10 + b'","ts":1}\n',
    "long_garbage": b"y" * MEGABYTES_10 + b"\n",
    "blank_lines": b'{"id":"before","ts":1}\n\n \t \n{"id":"after","ts":1}\n',
    "two_objects": b'{"id":"one","ts":1}{"id":"two","ts":2}\n',
    "trailing_garbage": b'{"id":"one","ts":1} oops\n',
    "no_last_line_end": b'{"id":"end","ts":1}',
    "windows_line_ends": b'{"id":"windows","ts":1}\r\n',
    "utf_16": '{"id":"wide"}'.encode("utf-16"),
}


@pytest.fixture(scope="module")
def rows(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Row]]:
    """The log after every file of FILES, by file."""
    lake = Lake(str(tmp_path_factory.mktemp("bad")))
    for name, content in FILES.items():
        land(notes.source.location(lake), [], name=name)
        Path(notes.source.location(lake), name).write_bytes(content)
    drained = drain(spark, lake, Pipeline(notes, (notes_by_day,)), now=lambda: NOW)
    assert drained.queries["log"].batches == 1
    log_rows = log.read_log(spark, lake, notes).where("_origin is not null").orderBy("_origin.position").collect()
    return {name: [row for row in log_rows if row["_origin"]["path"].endswith(f"/{name}")] for name in FILES}


def ids(log_rows: list[Row]) -> list[str | None]:
    return [row["id"] for row in log_rows]


def dead(log_rows: list[Row]) -> list[tuple[bytes, list[str]]]:
    return [(bytes(row["_raw"]), row["_rejected"]) for row in log_rows if row["_rejected"]]


def test_an_empty_file_brings_no_row(rows: dict[str, list[Row]]) -> None:
    assert rows["empty"] == []


def test_a_binary_file_is_rejected_with_its_bytes_intact(rows: dict[str, list[Row]]) -> None:
    assert dead(rows["binary"]) == [(BINARY, [JSON_NOT_UTF8])]


def test_a_byte_order_mark_does_not_spoil_the_first_line(rows: dict[str, list[Row]]) -> None:
    assert ids(rows["byte_order_mark"]) == ["bom"]
    assert dead(rows["byte_order_mark"]) == []


def test_a_line_of_ten_megabytes_is_a_row_like_any_other(rows: dict[str, list[Row]]) -> None:
    (valid,), ((payload, reasons),) = rows["long_line"], dead(rows["long_garbage"])
    assert (valid["_rejected"], len(valid["id"])) == (None, MEGABYTES_10)
    assert (payload, reasons) == (b"y" * MEGABYTES_10, [JSON_NOT_ONE])


def test_a_blank_line_is_rejected_and_its_neighbours_are_not(rows: dict[str, list[Row]]) -> None:
    assert ids(rows["blank_lines"]) == ["before", None, None, "after"]
    assert dead(rows["blank_lines"]) == [(b"", [JSON_NOT_ONE]), (b" \t ", [JSON_NOT_ONE])]


@pytest.mark.parametrize("name", ["two_objects", "trailing_garbage"])
def test_what_follows_the_first_object_on_a_line_rejects_the_line(rows: dict[str, list[Row]], name: str) -> None:
    assert ids(rows[name]) == [None]
    assert dead(rows[name]) == [(FILES[name].rstrip(b"\n"), [JSON_NOT_ONE])]


def test_a_line_ends_with_the_file_and_may_end_as_on_windows(rows: dict[str, list[Row]]) -> None:
    assert [ids(rows[name]) for name in ("no_last_line_end", "windows_line_ends")] == [["end"], ["windows"]]


def test_another_encoding_is_rejected(rows: dict[str, list[Row]]) -> None:
    assert dead(rows["utf_16"]) == [(FILES["utf_16"], [JSON_NOT_UTF8])]


def test_a_declared_column_that_the_data_lacks_is_null_and_rejects_nothing(rows: dict[str, list[Row]]) -> None:
    note_rows = [*rows["byte_order_mark"], *rows["no_last_line_end"]]
    assert [(row["_rejected"], row["note"]) for row in note_rows] == [(None, None)] * 2


def test_a_missing_landing_folder_is_an_error_and_an_empty_one_is_not(spark: SparkSession, lake: Lake) -> None:
    with pytest.raises(SourceError, match=r"landing folder '.*/landing/readings' does not exist; create it"):
        run(spark, lake, pipeline)

    Path(stream.source.location(lake)).mkdir(parents=True)
    drained = run(spark, lake, pipeline, end_of_input=True)
    assert (drained.queries, drained.head) == ({}, None)
    with pytest.raises(LogError, match=r"'readings' has no event log at '.*/readings/log' yet; run `tidemark run"):
        log.read_log(spark, lake, stream)

    # The folder is the same stream's when the first file comes.
    assert run(spark, lake, pipeline, readings("a@1")).queries["log"].rows == 1


@pytest.mark.long
def test_a_file_that_vanishes_while_it_is_read_stops_the_run_until_it_is_back_and_then_nothing_is_lost(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    # Spark writes every tenth entry of its list of files, the vanishing one's, in another form.
    land_all(lake, stream, *(readings(f"a@{second}") for second in range(9)))
    tenth = land(stream.source.location(lake), readings("a@9, a@9.5"))
    land(stream.source.location(lake), readings("a@10"))
    moments = itertools.count()

    def now() -> datetime:
        """The processing time, asked for once a batch: the tenth time, the file is listed but not read yet."""
        if next(moments) == 9:
            shutil.move(tenth, tmp_path / "elsewhere")
        return NOW

    for _ in range(2):  # running again does not step over it
        with pytest.raises(SourceError, match=r"vanished .*/landing/readings/0009\.json\. Put it back and run again"):
            drain(spark, lake, pipeline, now=now)

    shutil.move(tmp_path / "elsewhere", tenth)
    drain(spark, lake, pipeline, now=now)
    rows = log.valid(log.read_log(spark, lake, stream)).where("_batch >= 8")
    assert tuples(rows, "event_time", "_batch") == [
        (at(8), 8),
        (at(9), 9),
        (at(9.5), 9),
        (at(10), 10),
    ]


@pytest.mark.long
def test_the_same_file_name_again_is_not_read_again_but_reported(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, pipeline, readings("a@1"))
    land(stream.source.location(lake), readings("a@2, a@3"), name="0000.json")

    run(spark, lake, pipeline)

    assert tuples(log.valid(log.read_log(spark, lake, stream)), "event_time") == [(at(1),)]
    (change,) = stream.source.compare(spark, lake, log.read_log(spark, lake, stream)).changes
    assert change.kind == "changed"
    assert "0000.json" in change.text and "as a new file under a new name" in change.text
    waiting = stream.source.backlog(lake, lake.checkpoint(stream, log.QUERY))({})
    assert waiting.items == 0 and "after it was read: 0000.json. A file is read once" in waiting.warning
    (broken,) = (finding for finding in audit(spark, lake, pipeline) if not finding.holds)
    assert (broken.compared, broken.advice) == ("files ingested: not changed since", change.text)


@pytest.mark.long
def test_a_correction_of_a_day_without_data_changes_nothing(spark: SparkSession, lake: Lake) -> None:
    tomorrow = (T0 + timedelta(days=1)).date()
    with pytest.raises(LogError, match=r"'readings' has no event log .* run `tidemark run readings` first"):
        correct(spark, lake, count_by_sensor, [tomorrow], lambda: NOW)

    run(spark, lake, pipeline, readings("a@1"), readings("a@20"), end_of_input=True)
    before = tuples(read_current(spark, lake, count_by_sensor))
    assert correct(spark, lake, count_by_sensor, [tomorrow], lambda: NOW) == {tomorrow: 0}
    corrections = read_corrections(spark, lake, count_by_sensor)
    assert corrections is not None
    assert corrections.count() == 0
    assert tuples(read_current(spark, lake, count_by_sensor)) == before


@pytest.mark.long
def test_a_rejected_row_never_reaches_the_expressions_of_a_view(spark: SparkSession, lake: Lake) -> None:
    """The least bigint has no absolute value: computing it raises, and would crash the same batch for ever."""
    taps = Stream(
        name="taps",
        source=Files("landing/taps"),
        format=Json("id string, at timestamp, value bigint"),
        event_time="at",
        clock=BoundedOutOfOrderness("1 second"),
        rules=(Rule("value_plausible", "value between 0 and 9"),),
    )
    gaps = Windowed("gaps", taps, SessionWindow(seconds_of="abs(value) + 1"), {"rows": agg.count()}, by=("id",))
    good = {"id": "a", "at": at(0).isoformat(), "value": 1}
    run(spark, lake, Pipeline(taps, (gaps,)), [good, {**good, "value": -(2**63)}], end_of_input=True)
    assert tuples(read_current(spark, lake, gaps), "id", "rows") == [("a", 1)]
    assert log.rejected(log.read_log(spark, lake, taps)).count() == 1
