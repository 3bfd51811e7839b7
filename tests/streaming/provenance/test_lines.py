"""The lines of the files at which rows begin, compared with the files as they were written."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import (
    BoundedOutOfOrderness,
    Csv,
    CsvRecords,
    Files,
    Json,
    Lake,
    Pipeline,
    Rule,
    Stream,
    Tumbling,
    Why,
    Windowed,
    agg,
    why,
)
from streaming.provenance import InputRow, RejectedRow, lines
from streaming.provenance.lines import with_lines
from streaming.provenance.log_rows import place_in_words
from streaming.service.drain import drain
from streaming.sources import file_lines, file_records
from tests.support.instants import NOW, at

CLOCK = BoundedOutOfOrderness("5 seconds", max_ahead="30 days")
SCHEMA = "room string, at timestamp, heat bigint, note string"
RULES = (Rule("heat_present", "heat is not null"),)

lined = Stream(
    "lined", Files("landing/lined", files_per_batch=4), Json(SCHEMA), event_time="at", clock=CLOCK, rules=RULES
)
recorded = replace(
    lined,
    name="recorded",
    source=Files("landing/recorded", files_per_batch=4, payloads=CsvRecords(header=True, comment="#")),
    format=Csv(SCHEMA, header=True),
)
by_room = Windowed("by_room", lined, Tumbling("1 hour"), {"heat": agg.sum("heat")}, by=("room",))
by_room_of_records = replace(by_room, name="by_room_of_records", of=recorded)
revised = Stream(
    "revised",
    Files("landing/revised", files_per_batch=1),
    Json("id string, rev bigint, at timestamp, heat bigint"),
    event_time="at",
    clock=CLOCK,
    key=("id",),
    sequence="rev",
)
by_id = Windowed("by_id", revised, Tumbling("1 hour"), {"heat": agg.sum("heat")}, by=("id",))
OF_REVISIONS = Pipeline(revised, (by_id,))
OF_LINES = Pipeline(lined, (by_room,))
BOTH = Pipeline(name="rooms", streams=(lined, recorded), operators=(by_room, by_room_of_records))
KEY = {"room": "a", "window_start": at(0)}


def measured(room: str, seconds: float, heat: int | None, note: str = "") -> dict[str, Any]:
    return {"room": room, "at": at(seconds).isoformat(), "heat": heat, "note": note}


def as_json(*rows: dict[str, Any] | None) -> list[str]:
    """Lines of JSON; None is a line without text."""
    return ["" if row is None else json.dumps(row) for row in rows]


def as_csv(*rows: dict[str, Any] | str) -> list[str]:
    """Records of CSV behind their header, some of more than one line; a text is a comment."""
    records = [
        row
        if isinstance(row, str)
        else f'{row["room"]},{row["at"]},{"" if row["heat"] is None else row["heat"]},"{row["note"]}"'
        for row in rows
    ]
    return ["room,at,heat,note", *records]


def put(folder: Path, name: str, content: str, seconds: int) -> Path:
    """Put a file that is so many seconds younger than the first one."""
    folder.mkdir(parents=True, exist_ok=True)
    file, instant = folder / name, NOW.timestamp() + seconds
    packed = content.encode() if not name.endswith(".gz") else gzip.compress(content.encode())
    file.write_bytes(packed)
    os.utime(file, (instant, instant))
    return file


SHORT = as_json(measured("a", 1, 1), None, measured("b", 2, 2), measured("a", 3, 3))
EQUAL = as_json(None, measured("a", 4, 4), measured("a", 4, 4), None, measured("b", 5, 5), measured("a", 6, None))
PACKED = as_json(None, None, measured("a", 7, 7), measured("a", 8, 8, "long" * 100))
NOTED = as_csv(
    measured("a", 1, 1, "one\ntwo"),
    "# room a,2",
    measured("b", 2, 2),
    measured("a", 3, 3, "\r\n"),
    measured("a", 6, None, "\n"),
)
WRITTEN = {
    "short.json": "\n".join(SHORT),
    "equal.json": "\r\n".join(EQUAL),
    "packed.json.gz": "\n".join(PACKED),
    "noted.csv": "\n".join(NOTED),
    "more.csv": "\r\n".join(as_csv(measured("a", 9, 9), measured("a", 9, 9))),
}


@pytest.fixture(scope="module", params=["fast", pytest.param("careful", marks=pytest.mark.long)])
def lake(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lake]:
    """All files of a stream in one batch, as tasks and as Spark take them."""
    there = Lake(str(tmp_path_factory.mktemp("lines") / "lake"))
    for place, (name, content) in enumerate(WRITTEN.items()):
        put(Path(there.path("landing", "recorded" if name.endswith(".csv") else "lined")), name, content, place)
    with pytest.MonkeyPatch.context() as mode:
        mode.setenv("TIDEMARK_INGEST", request.param)
        drain(spark, there, BOTH, now=lambda: NOW, end_of_input=True)
    yield there


def lines_told(answer: Why) -> list[tuple[str, int | None]]:
    """The file and line of each row, as the answer has them and as its words do."""
    rows: list[InputRow | RejectedRow] = [*answer.inputs, *answer.rejected]
    told = sorted((row.place.rpartition("/")[2].partition(",")[0], row.line) for row in rows)
    assert sorted(row.place.rpartition("/")[2] for row in rows) == sorted(f"{name}, line {line}" for name, line in told)
    return told


def lines_written(names: str, room: str = "a") -> list[tuple[str, int]]:
    """The lines at which rows of a room begin, by the text that was written."""
    wanted = []
    for name, content in WRITTEN.items():
        if name.endswith(names):
            for number, line in enumerate(content.replace("\r\n", "\n").split("\n"), 1):
                begins = f'{{"room": "{room}"' if names != ".csv" else f"{room},"
                wanted += [(name, number)] * line.startswith(begins)
    return sorted(wanted)


def test_each_row_of_json_has_the_line_at_which_it_was_written(spark: SparkSession, lake: Lake) -> None:
    answer = why(BOTH, by_room, KEY, lake=lake, spark=spark)
    assert answer.agrees and answer.published[0]["heat"] == 1 + 3 + 4 + 4 + 7 + 8
    told = lines_told(answer)
    assert told == sorted([*lines_written(".json"), *lines_written(".gz")])
    assert len(told) == len({*told}) == 7


def test_each_record_of_csv_has_the_line_at_which_it_begins(spark: SparkSession, lake: Lake) -> None:
    answer = why(BOTH, by_room_of_records, KEY, lake=lake, spark=spark)
    assert answer.agrees and answer.published[0]["heat"] == 1 + 3 + 9 + 9
    told = lines_told(answer)
    assert told == lines_written(".csv")
    assert ("noted.csv", 8) in told and len(told) == len({*told}) == 5
    assert answer.document()["rejected"][0]["line"] == 8


def alone(answer: Why, number: int) -> Why:
    """The answer with one of its rows, as the log has it."""
    row = answer.inputs[number]
    bare = replace(row, line=None, place=place_in_words(row.origin))
    return replace(answer, inputs=(bare,), rejected=())


def test_of_equal_records_none_is_guessed(spark: SparkSession, lake: Lake) -> None:
    answer = why(BOTH, by_room, KEY, lake=lake, spark=spark)
    for number, row in enumerate(answer.inputs):
        (found,) = with_lines(lake, [lined], alone(answer, number), lambda: spark).inputs
        is_one_of_two = row.values["heat"] == 4
        assert found.line in ((row.line, None) if is_one_of_two else (row.line,))
    fewer = replace(answer, inputs=tuple(replace(row, values={"room": "a"}) for row in answer.inputs), rejected=())
    for was, now in zip(answer.inputs, with_lines(lake, [lined], fewer, lambda: spark).inputs, strict=True):
        assert now.line in (was.line, None)


def without_lines(answer: Why) -> Why:
    """The answer with its rows as the log has them, but for those that were rejected."""
    return replace(
        answer, inputs=tuple(alone(answer, number).inputs[0] for number in range(len(answer.inputs))), rejected=()
    )


@pytest.mark.parametrize(("was", "now"), [("room string", "room bigint"), ("heat bigint", "heat boolean")])
def test_rows_of_a_column_that_is_declared_as_another_type_by_now_have_no_line(
    spark: SparkSession, lake: Lake, was: str, now: str
) -> None:
    bare = without_lines(why(BOTH, by_room, KEY, lake=lake, spark=spark))
    other = replace(lined, format=Json(SCHEMA.replace(was, now)))
    assert {row.line for row in with_lines(lake, [other], bare, lambda: spark).inputs} == {None}


def test_files_are_read_up_to_a_number_and_a_size_of_what_is_in_them(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = without_lines(why(BOTH, by_room, KEY, lake=lake, spark=spark))

    def files_told() -> list[str]:
        told = with_lines(lake, [lined], bare, lambda: spark).inputs
        return list(dict.fromkeys(Path(row.origin["path"]).name for row in told if row.line is not None))

    every = files_told()
    assert sorted(every) == sorted(name for name in WRITTEN if not name.endswith(".csv"))
    with monkeypatch.context() as few:
        few.setattr(lines, "MOST_FILES", 2)
        assert files_told() == every[:2]
    before = every[: every.index("packed.json.gz")]
    packed = Path(lake.path("landing/lined/packed.json.gz")).stat().st_size
    monkeypatch.setattr(lines, "MOST", sum(len(WRITTEN[name]) for name in before) + packed)
    assert files_told() == before


def test_a_file_that_tasks_have_shared_has_its_own_lines(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks begin anew to number rows in each part of a file."""
    for module in (file_lines, file_records):
        monkeypatch.setattr(module, "OF_ONE_TASK", 100)
    monkeypatch.setattr(file_lines, "_LARGEST", 300)
    there = Lake(str(tmp_path / "lake"))
    rows = [measured("a" if number % 3 else "b", number, number % 4) for number in range(30)]
    file = put(Path(there.path("landing/lined")), "0.json", "\n".join(as_json(None, *rows)), 0)
    drain(spark, there, OF_LINES, now=lambda: NOW, end_of_input=True)
    answer = why(OF_LINES, by_room, KEY, lake=there, spark=spark)
    assert len({row.origin["position"] >> 33 for row in answer.inputs}) > 3
    wanted = [number for number, line in enumerate(file.read_text().split("\n"), 1) if '"a"' in line]
    assert [line for _, line in lines_told(answer)] == wanted


def test_of_a_file_that_is_gone_or_changed_the_position_is_told(spark: SparkSession, tmp_path: Path) -> None:
    there = Lake(str(tmp_path / "lake"))
    folder = Path(there.path("landing/lined"))
    files = [put(folder, f"{number}.json", "\n".join(SHORT), number) for number in range(3)]
    drain(spark, there, OF_LINES, now=lambda: NOW, end_of_input=True)
    files[0].unlink()
    put(folder, "1.json", "\n".join(reversed(SHORT)), 1_000)
    answer = why(OF_LINES, by_room, KEY, lake=there, spark=spark)
    told = sorted((Path(row.origin["path"]).name, row.line) for row in answer.inputs)
    assert told == [
        ("0.json", None),
        ("0.json", None),
        ("1.json", None),
        ("1.json", None),
        ("2.json", 1),
        ("2.json", 4),
    ]
    assert {", position " in row.place for row in answer.inputs if row.line is None} == {True}


def test_a_revision_has_its_own_line_where_the_one_that_it_takes_back_is_sent_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    """```
    1.json    x rev 1 = 40
    2.json    x rev 1 = 40    sent again
              x rev 2 = 4000
    ```
    """
    there = Lake(str(tmp_path / "lake"))
    folder = Path(there.path("landing/revised"))
    first, second = (
        {"id": "x", "rev": rev, "at": at(1).isoformat(), "heat": heat} for rev, heat in ((1, 40), (2, 4000))
    )
    put(folder, "1.json", json.dumps(first), 0)
    put(folder, "2.json", "\n".join(map(json.dumps, (first, second))), 1)
    drain(spark, there, OF_REVISIONS, now=lambda: NOW, end_of_input=True)
    answer = why(OF_REVISIONS, by_id, {"id": "x", "window_start": at(0)}, lake=there, spark=spark)
    assert answer.agrees
    told = {(row.values["heat"], row.change, row.line) for row in answer.inputs}
    assert (4000, 1, 2) in told and (40, 1, 1) in told
    assert {line for _, change, line in told if change < 0} <= {None, 2}
