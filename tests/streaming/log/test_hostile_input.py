"""What somebody lands to do harm costs no more than it may and is named, and nothing beside it is lost."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

from streaming import Ascending, Files, Json, Pipeline, Stream, Tumbling, Windowed, agg, drain, log
from streaming.audit.laws import audit
from streaming.base.errors import SourceError
from streaming.lake.lake import Lake
from tests.support.instants import NOW

SCHEMA = """id string not null, n bigint, d double, m decimal(20, 2), t timestamp, list array<string>,
    part struct<x: string>, named map<string, string>"""
hostile = Stream(
    name="hostile",
    source=Files("landing/hostile", files_per_batch=100, longest_line=3_000_000, largest_unpacked=4_000_000),
    format=Json(SCHEMA),
    derived={"at": "_ingested_at"},
    event_time="at",
    clock=Ascending(),
)
by_hour = Windowed("hostile_by_hour", hostile, Tumbling("1 hour"), {"rows": agg.count()})
pipeline = Pipeline(hostile, (by_hour,))

DEEP = 100_000
NINES = "9" * DEEP
WHOLE = "json: the payload is not one JSON object"
VALID = ""
PAYLOADS: dict[str, tuple[str, str]] = {
    # the fields beside `id`, and how the reason against the row begins; empty where there is none
    "deep lists that nobody declared": (f'"z": {"[" * DEEP}{"]" * DEEP}', WHOLE),
    "deep objects that nobody declared": ('"z": ' + '{"a":' * DEEP + "1" + "}" * DEEP, WHOLE),
    "deep lists without an end": (f'"z": {"[" * 10 * DEEP}', WHOLE),
    "deep lists where a flat one is declared": (f'"list": {"[" * DEEP}{"]" * DEEP}', WHOLE),
    "a whole number of 100,000 digits": (f'"n": {NINES}', "type: n is not"),
    "a decimal of as many": (f'"m": {NINES}', "type: m is not"),
    "one that nobody declared": (f'"z": {NINES}', VALID),
    "an exponent of a billion in a whole number": ('"n": 1e999999999', "type: n is not"),
    "in a decimal": ('"m": 1e999999999', "type: m is not"),
    "a negative one": ('"m": 1e-999999999', "type: m is not"),
    "in a double": ('"d": 1e999999999', "type: d is not"),
    "an instant in the year 999999999": ('"t": "999999999-01-01T00:00:00Z"', "type: t is not"),
    "an instant of 100,000 digits": (f'"t": "{NINES}T00:00:00Z"', "type: t is not"),
    "a name of a million letters": (f'"{"k" * 10 * DEEP}": 1', VALID),
    "a name of 40,000": (f'"{"k" * 40_000}": 1', VALID),
    "names that look like markup, SQL and orders to a terminal": (
        r'"[/red]": 1, "`; drop table log": 1, "a\u001b]0;x\u0007\u001fb\nc": 1',
        VALID,
    ),
    "100,000 fields": (", ".join(f'"k{number}": 1' for number in range(DEEP)), VALID),
    "a map of as many": ('"named": {' + ", ".join(f'"k{number}": "1"' for number in range(DEEP)) + "}", VALID),
    "the same field 100,000 times": (", ".join('"n": 1' for _ in range(DEEP)), WHOLE),
}
NAMES = (
    "it's",
    'a "b"',
    "a`b`",
    "a;b --",
    "[a-b]*?{c,d}",
    "100%25",
    "a%2Fb",
    "a+b c",
    "${HOME}",
    "$(id)",
    "-rf",
    "a..b",
    "back\\slash",
    "line\nend",
    "ünï",
    "#frag?query=1",
    "\x1b[31m",
)


def payload(fields: str) -> bytes:
    return f'{{"id": "x", {fields}}}'.encode()


@pytest.fixture(scope="module")
def ran(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Lake, list[Row]]:
    """A lake into which all payloads came in one file, and a row in a file of each name; and its log."""
    lake = Lake(str(tmp_path_factory.mktemp("hostile") / "lake"))
    folder = Path(hostile.source.location(lake))
    folder.mkdir(parents=True)
    (folder / "payloads").write_bytes(b"\n".join(payload(fields) for fields, _ in PAYLOADS.values()))
    for place, name in enumerate(NAMES):
        (folder / name).write_text(json.dumps({"id": f"file {place}"}))
    drained = drain(spark, lake, pipeline, now=lambda: NOW)
    assert drained.queries["log"].rows == len(PAYLOADS) + len(NAMES)
    rows = log.read_log(spark, lake, hostile).where("_origin is not null").orderBy("_origin.position")
    return lake, rows.select("id", "_raw", "_rejected", "_origin").collect()


def test_a_payload_that_would_cost_too_much_is_a_rejected_row_and_its_bytes_are_kept(
    ran: tuple[Lake, list[Row]],
) -> None:
    rows = [row for row in ran[1] if row["_origin"]["path"].endswith("/payloads")]
    reasons = {name: "; ".join(row["_rejected"] or ())[:60] for name, row in zip(PAYLOADS, rows, strict=True)}
    expected = {name: reason for name, (_, reason) in PAYLOADS.items()}
    assert {name: reason[: len(expected[name]) or 60] for name, reason in reasons.items()} == expected
    for (fields, reason), row in zip(PAYLOADS.values(), rows, strict=True):
        assert bytes(row["_raw"] or b"") in (payload(fields), b"") and (row["_raw"] is not None or not reason)


def test_a_file_of_any_name_is_read_once_and_found_again_by_its_name(
    spark: SparkSession, ran: tuple[Lake, list[Row]]
) -> None:
    lake, rows = ran
    ids = sorted(row["id"] for row in rows if row["id"] and row["id"].startswith("file "))
    assert ids == sorted(f"file {place}" for place in range(len(NAMES)))
    assert drain(spark, lake, pipeline, now=lambda: NOW).queries == {}
    assert hostile.source.backlog(lake, lake.checkpoint(hostile, log.QUERY))({}).items == 0
    assert [finding for finding in audit(spark, lake, pipeline) if not finding.holds] == []


def test_names_of_unknown_fields_take_little_room_in_the_commit(ran: tuple[Lake, list[Row]]) -> None:
    (batch,) = (batch for batch in log.read_batches(ran[0], hostile) if batch.summary.rows)
    assert batch.unknown and all(len(name) <= 103 and name.isprintable() for name in batch.unknown)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("bomb.gz", lambda: gzip.compress(b"\n" * 5_000_000), "unpacks to more than largest_unpacked=4,000,000 bytes"),
        ("a:b", lambda: b'{"id": "b"}', "cannot be read: Hadoop knows no local file with a colon"),
        ("line", lambda: b"x" * 3_000_001, "has a line of more than longest_line=3,000,000 bytes"),
        ("cut.gz", lambda: gzip.compress(b'{"id": "a"}\n' * 3_000)[:60], "cannot be unpacked"),
    ],
)
def test_a_bomb_stops_the_stream_and_nothing_is_lost_once_it_is_put_aside(
    spark: SparkSession, lake: Lake, tmp_path: Path, name: str, content: Callable[[], bytes], reason: str
) -> None:
    folder = Path(hostile.source.location(lake))
    folder.mkdir(parents=True)
    (folder / "before").write_bytes(b'{"id": "before"}')
    (folder / name).write_bytes(content())
    for _ in range(2):
        with pytest.raises(SourceError, match=f"{name} {reason}.*leave an empty file under its name"):
            drain(spark, lake, pipeline, now=lambda: NOW)
    (folder / name).rename(tmp_path / name)
    (folder / name).touch()
    (folder / "after").write_bytes(b'{"id": "after"}')
    drain(spark, lake, pipeline, now=lambda: NOW)
    assert sorted(row["id"] for row in log.read_log(spark, lake, hostile).where("id is not null").collect()) == [
        "after",
        "before",
    ]
    assert [finding for finding in audit(spark, lake, pipeline) if not finding.holds] == []


@pytest.mark.long
def test_a_bound_that_is_raised_lets_the_file_in(spark: SparkSession, lake: Lake) -> None:
    folder = Path(hostile.source.location(lake))
    folder.mkdir(parents=True)
    (folder / "large.gz").write_bytes(gzip.compress(b'{"id": "a"}\n' * 100))
    source = hostile.source
    assert isinstance(source, Files)
    low, high = (replace(hostile, source=replace(source, largest_unpacked=most)) for most in (1_000, 1_200))
    with pytest.raises(SourceError, match="raise that bound in Files"):
        drain(spark, lake, Pipeline(low, (replace(by_hour, of=low),)), now=lambda: NOW)
    assert drain(spark, lake, Pipeline(high, (replace(by_hour, of=high),)), now=lambda: NOW).queries["log"].rows == 100
