"""Input and circumstances that are not as they should be: a rejected row or a clear error, and nothing is lost."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import signal
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

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
from streaming.base import FIRST_INSTANT
from streaming.base.errors import CheckpointError, LeaseError, LogError, QueryFailed, SettingsError, SourceError
from streaming.examples.late_counts import count_by_sensor, pipeline
from streaming.examples.late_counts import readings as stream
from streaming.lake.lake import Lake
from streaming.log import validate
from streaming.operations.doctor import examine
from streaming.views.corrections import correct, plan, read_corrections
from tests.support.feeds import land, land_all, readings
from tests.support.instants import NOW, T0, at
from tests.support.runs import read_current, run, tuples

PROJECT = Path(__file__).resolve().parents[3]
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
    found = log.read_log(spark, lake, notes).where("_origin is not null").orderBy("_origin.position").collect()
    return {name: [row for row in found if row["_origin"]["path"].endswith(f"/{name}")] for name in FILES}


def ids(found: list[Row]) -> list[str | None]:
    return [row["id"] for row in found]


def dead(found: list[Row]) -> list[tuple[bytes, list[str]]]:
    return [(bytes(row["_raw"]), row["_rejected"]) for row in found if row["_rejected"]]


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
    found = [*rows["byte_order_mark"], *rows["no_last_line_end"]]
    assert [(row["_rejected"], row["note"]) for row in found] == [(None, None)] * 2


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


@pytest.mark.processes
def test_a_second_process_on_the_same_checkpoint_is_refused_until_the_first_one_is_dead(
    spark: SparkSession, lake: Lake
) -> None:
    land(stream.source.location(lake), readings("a@1"))
    holder = (
        "import sys; from streaming.lake import Lake; from streaming.service import take_lease; "
        "from streaming.examples.late_counts import readings\n"
        "with take_lease(Lake(sys.argv[1]), readings): print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder, lake.root],
        cwd=PROJECT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(LeaseError, match=rf"'readings' is already held by process {other.pid}\b.*wait until"):
            run(spark, lake, pipeline)
        assert not Path(lake.log(stream)).exists()
        other.send_signal(signal.SIGKILL)

    assert run(spark, lake, pipeline).queries["log"].rows == 1


def test_a_checkpoint_deleted_while_the_log_has_rows_is_refused_and_a_view_comes_back_from_the_log(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    run(spark, lake, pipeline, readings("a@1, a@20"))
    logged = tuples(log.read_log(spark, lake, stream))
    first = tuples(read_current(spark, lake, count_by_sensor))

    checkpoint = lake.checkpoint(stream, "log")
    shutil.move(checkpoint, tmp_path / "backup")
    with pytest.raises(CheckpointError, match=r"checkpoint '.*/log' is gone.*repeat or lose rows.*Restore the check"):
        run(spark, lake, pipeline)
    shutil.move(tmp_path / "backup", checkpoint)

    shutil.rmtree(lake.first(count_by_sensor))
    run(spark, lake, pipeline)

    assert tuples(log.read_log(spark, lake, stream)) == logged
    assert tuples(read_current(spark, lake, count_by_sensor)) == first == [("a", at(0), at(10), 1, T0.date(), False)]

    # Lost for good, it is made again from the origins in the log: what was taken is taken no more, and what comes is.
    run(spark, lake, pipeline, [*readings("a@21"), b"broken"], readings("a@22"))
    shutil.rmtree(checkpoint)
    (missing,) = [each for each in examine(lake, pipeline) if each.kind == "checkpoint missing"]
    assert missing.heal is not None
    missing.heal()
    assert [each.kind for each in examine(lake, pipeline) if not each.note] == []
    before = [batch.number for batch in log.read_batches(lake, stream)]
    run(spark, lake, pipeline)
    assert [batch.number for batch in log.read_batches(lake, stream)] == before
    run(spark, lake, pipeline, readings("a@25"), readings("a@26"))
    assert log.valid(log.read_log(spark, lake, stream)).count() == 6
    assert [finding.law for finding in audit(spark, lake, pipeline) if not finding.holds] == []


def test_a_lake_that_cannot_be_written_is_an_error_that_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    lake = Lake(str(tmp_path / "file" / "lake"))

    with pytest.raises(LeaseError, match=r"cannot write '.*/file/lake/.*Not a directory.*writable.*TIDEMARK_HOME"):
        drain(spark, lake, pipeline, now=lambda: NOW)


@pytest.mark.parametrize(("name", "refused"), [("a%20b", "%"), ("a[1]", "["), ("a*", "*"), ("{a}", "{")])
def test_a_lake_whose_path_delta_or_spark_would_read_otherwise_is_refused(
    tmp_path: Path, name: str, refused: str
) -> None:
    with pytest.raises(SettingsError, match=re.escape(f"{name}' contains {refused!r}; choose a folder without it")):
        Lake(str(tmp_path / name))


def test_a_log_that_cannot_be_written_loses_nothing(spark: SparkSession, lake: Lake) -> None:
    Path(lake.root).mkdir()
    blocked = Path(lake.path(stream.name))
    blocked.write_text("no folder")
    land(stream.source.location(lake), readings("a@1"))

    with pytest.raises(QueryFailed, match=r"Query.*/readings/log.*Not a directory.*correct the cause and run"):
        run(spark, lake, pipeline)
    blocked.unlink()
    run(spark, lake, pipeline, readings("a@2"))

    assert tuples(log.valid(log.read_log(spark, lake, stream)), "event_time") == [(at(1),), (at(2),)]


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


visits = Stream(
    name="visits",
    source=Files("landing/visits"),
    format=Json("id string not null, at timestamp"),
    event_time="at",
    clock=BoundedOutOfOrderness("1 second"),
)
visits_by_week = Windowed("visits_by_week", visits, Tumbling("7 days"), {"visits": agg.count()}, by=("id",))
visits_by_session = Windowed("visits_by_session", visits, SessionWindow("1 hour"), {"visits": agg.count()}, by=("id",))
visits_pipeline = Pipeline(visits, (visits_by_week, visits_by_session))

WEEK, HOUR = 7 * 86_400, 3600
ZERO_DATE, YEAR_99, LAST_DAY = "0001-01-01T00:00:00Z", "0099-06-01T12:00:00Z", "9999-12-31T00:00:00Z"


def visit(instant: datetime | str) -> str:
    return json.dumps({"id": "a", "at": instant if isinstance(instant, str) else instant.isoformat()})


def land_visits_of_any_year(lake: Lake) -> None:
    """A week, a day of the next one, which closes it, and late rows; no clock can carry some of the times."""
    land_all(
        lake,
        visits,
        [visit(at(-2 * WEEK)), visit(ZERO_DATE)],
        [visit(at(-WEEK)), visit(YEAR_99)],
        [visit(at(-2 * WEEK + HOUR)), visit(ZERO_DATE), visit(YEAR_99), visit(LAST_DAY)],
    )


def visits_once_corrected(spark: SparkSession, lake: Lake) -> dict[str, list[tuple[Any, ...]]]:
    """What each view says of the current era, once every day of it that waits is corrected."""
    counts = {}
    for view in (visits_by_week, visits_by_session):
        days = [pending.day for pending in plan(spark, lake, view) if pending.day.year > 99]
        correct(spark, lake, view, days, lambda: NOW)
        current = read_current(spark, lake, view).where("window_start > '2000-01-01'")
        counts[view.name] = tuples(current, "window_start", "visits")
    return counts


CORRECTED = {
    "visits_by_week": [(at(-2 * WEEK), 2), (at(-WEEK), 1)],
    "visits_by_session": [(at(-2 * WEEK), 2), (at(-WEEK), 1)],
}


def test_event_times_that_no_window_can_carry_are_dead_letters_and_stop_nothing(
    spark: SparkSession, lake: Lake
) -> None:
    land_visits_of_any_year(lake)
    drained = drain(spark, lake, visits_pipeline, end_of_input=True, now=lambda: NOW)

    assert (drained.queries["log"].batches, drained.queries["log"].rows) == (3, 8)
    dead_letters = log.rejected(log.read_log(spark, lake, visits))
    payloads = [visit(instant).encode() for instant in (ZERO_DATE, YEAR_99, ZERO_DATE, YEAR_99, LAST_DAY)]
    reason = "event_time: at lies outside the years 100 to 9899"
    assert tuples(dead_letters.selectExpr("_raw", "_rejected[0]")) == sorted((payload, reason) for payload in payloads)
    assert visits_once_corrected(spark, lake) == CORRECTED
    assert [finding for finding in audit(spark, lake, visits_pipeline) if not finding.holds] == []


def test_event_times_that_were_valid_in_an_older_log_stop_neither_corrections_of_other_days_nor_the_audit(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    land_visits_of_any_year(lake)
    with monkeypatch.context() as older:
        older.setattr(validate, "FIRST_EVENT_TIME", FIRST_INSTANT)
        # A session remembers how it judges the rows of a stream.
        drain(spark.newSession(), lake, visits_pipeline, now=lambda: NOW)
    assert log.valid(log.read_log(spark, lake, visits)).count() == 7

    drain(spark, lake, visits_pipeline, end_of_input=True, now=lambda: NOW)

    assert visits_once_corrected(spark, lake) == CORRECTED
    assert {finding.law for finding in audit(spark, lake, visits_pipeline)} >= {"first result", "convergence"}
