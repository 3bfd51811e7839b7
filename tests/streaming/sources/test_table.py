"""Tables as sources: the contract, whatever maintenance does to what is followed, and tables that are others by now."""

from __future__ import annotations

import base64
import json
import math
import re
import shutil
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streaming import Files, Json, Lake, Stream, Table
from streaming.base.errors import DeclarationError, SourceError
from streaming.clocks import BoundedOutOfOrderness
from streaming.formats import TYPED
from streaming.sources.table.source import source_table
from streaming.sources.table.units import ordered
from tests.streaming.sources.contract import Batches, Reader, SourceCase, SourceContract
from tests.support.instants import T0
from tests.support.runs import tuples

ORDERS = Stream(
    "orders",
    Files("landing/orders"),
    Json("value string"),
    event_time="at",
    derived={"at": "_origin.modified"},
    clock=BoundedOutOfOrderness("0 seconds"),
)
NOTHING_KEPT: dict[str, Any] = {"retention_hours": 0, "enforce_retention_duration": False, "dry_run": False}


class TableCase(SourceCase):
    """Somebody who appends to a Delta table; a delivery is called by the number of its unit."""

    uri: str

    def payload(self, delivered: bytes) -> bytes:
        return json.dumps({"value": base64.b64encode(delivered).decode()}, separators=(",", ":")).encode()

    def remove(self) -> None:
        shutil.rmtree(self.uri)

    def speaks_of(self, words: str, name: str) -> bool:
        match = re.search(r"(?:versions?|batch) (\d+)(?: to (\d+))?", words)
        if match is None:
            # Of a table as a whole nothing is told by units.
            return True
        first = 0 if "up to" in words else int(match[1])
        return first <= int(name) <= int(match[2] or match[1])


class VersionsCase(TableCase):
    """Any Delta table."""

    def __init__(self, lake: Lake) -> None:
        self.uri = lake.path("elsewhere")
        self.source = Table(self.uri, start_version=0, rows_per_batch=3)
        write_deltalake(self.uri, pa.table({"value": pa.array([], pa.binary())}))

    def deliver(self, *payloads: bytes) -> str:
        write_deltalake(self.uri, pa.table({"value": list(payloads)}), mode="append")
        return str(DeltaTable(self.uri).version())

    def change(self, name: str) -> None:
        shutil.rmtree(self.uri)
        for version in range(int(name) + 6):
            write_deltalake(self.uri, pa.table({"value": [str(version).encode()]}), mode="append")

    def lose(self, name: str) -> None:
        DeltaTable(self.uri).optimize.compact()
        DeltaTable(self.uri).vacuum(**NOTHING_KEPT)


class LogCase(TableCase):
    """The log of a stream, as far as a reader of it sees."""

    def __init__(self, lake: Lake) -> None:
        self.uri = lake.log(ORDERS)
        self.source = Table(ORDERS, rows_per_batch=3)
        self._batch = 0
        self._append([], at=T0)

    def payload(self, delivered: bytes) -> bytes:
        return super().payload(delivered).removesuffix(b"}") + b',"at":"2026-01-01T00:00:00.000000Z"}'

    def deliver(self, *payloads: bytes) -> str:
        self._append(list(payloads), at=T0)
        # A heartbeat and a rejected row, which are nobody's rows.
        self._append([b"rejected"], at=None)
        return str(self._batch - 2)

    def change(self, name: str) -> None:
        shutil.rmtree(self.uri)
        self._batch = 0
        for _ in range(4):
            self.deliver(b"x")

    def lose(self, name: str) -> None:
        DeltaTable(self.uri).delete(f"_batch = {name}")

    def _append(self, payloads: list[bytes], at: datetime | None) -> None:
        rows = len(payloads)
        columns: dict[str, Any] = {
            "value": pa.array(payloads, pa.binary()),
            "at": pa.array([at] * rows, pa.timestamp("us", "UTC")),
            "_batch": pa.array([self._batch] * rows, pa.int64()),
            # Rows lie in files in any order.
            "_origin": [{"path": "f", "position": position} for position in reversed(range(rows))],
            "_ingested_at": pa.array([T0] * rows, pa.timestamp("us", "UTC")),
            "_day": pa.array([None if at is None else at.date()] * rows, pa.date32()),
        }
        columns["value"] = columns["value"].take(pa.array(list(reversed(range(rows))), pa.int64()))
        if not rows:
            columns["_origin"] = pa.array([], pa.struct([("path", pa.string()), ("position", pa.int64())]))
        write_deltalake(self.uri, pa.table(columns), partition_by=["_day"], mode="append")
        self._batch += 1 if rows else 0


@pytest.mark.long
class TestDeltaTable(SourceContract):
    @pytest.fixture
    def case(self, lake: Lake) -> VersionsCase:
        return VersionsCase(lake)


class TestLog(SourceContract):
    @pytest.fixture
    def case(self, lake: Lake) -> LogCase:
        return LogCase(lake)


def values(batches: Batches) -> list[str]:
    """What came, in order."""
    return [
        base64.b64decode(json.loads(payload)["value"]).decode()
        for number in sorted(batches)
        for payload, _ in batches[number]
    ]


def forget_before(uri: str, version: int) -> None:
    """Remove the entries of versions before one with a checkpoint, as Delta does once they are older than its limit."""
    for entry in Path(uri, "_delta_log").glob("*.json"):
        if int(entry.stem) < version:
            entry.unlink()


def tidied(uri: str) -> None:
    """Everything in one file, nothing old left, and no entry of the log that a reader of today's rows does not need."""
    table = DeltaTable(uri)
    table.optimize.compact()
    table.vacuum(**NOTHING_KEPT, full=True)
    table.create_checkpoint()


@pytest.mark.long
def test_a_log_that_was_compacted_and_cleaned_while_nobody_followed_is_read_to_the_last_row(
    spark: SparkSession, lake: Lake
) -> None:
    case = LogCase(lake)
    reader = Reader(spark, lake, case.source)
    case.deliver(b"a", b"b")
    before = reader.read_on()
    for payload in (b"c", b"d", b"e", b"f"):
        case.deliver(payload)
    planned = reader.die()
    tidied(case.uri)
    after = reader.read_on()
    assert after[1] == planned[1], "a planned batch has the same rows at the same places, in whatever files they lie"
    assert values(before | after) == ["a", "b", "c", "d", "e", "f"]
    assert reader.read_on() == {}


@pytest.mark.long
def test_a_delta_table_that_is_compacted_brings_no_row_twice(spark: SparkSession, lake: Lake) -> None:
    case = VersionsCase(lake)
    reader = Reader(spark, lake, case.source)
    case.deliver(b"a")
    case.deliver(b"b")
    assert values(reader.read_on()) == ["a", "b"]
    case.deliver(b"c")
    DeltaTable(case.uri).optimize.compact()
    assert values(reader.read_on()) == ["c"]
    assert case.source.backlog(lake, reader.checkpoint)(reader.memory).items == 0


@pytest.mark.long
def test_a_delta_table_without_new_rows_is_followed_for_longer_than_it_keeps_its_history(
    spark: SparkSession, lake: Lake
) -> None:
    """Only its upkeep commits for months, and each time the entries of what came before are cleaned away."""
    case = VersionsCase(lake)
    reader = Reader(spark, lake, case.source)
    case.deliver(b"a")
    assert values(reader.read_on()) == ["a"]
    for month in range(3):
        DeltaTable(case.uri).alter.set_table_properties({"month": str(month)}, raise_if_not_exists=False)
        assert values(reader.read_on()) == []
        tidied(case.uri)
        forget_before(case.uri, DeltaTable(case.uri).version())
        assert values(reader.read_on()) == []
    case.deliver(b"b")
    assert values(reader.read_on()) == ["b"]


@pytest.mark.long
def test_a_delta_table_is_followed_from_all_that_is_there_at_the_first_start(spark: SparkSession, lake: Lake) -> None:
    case = VersionsCase(lake)
    for payload in (b"a", b"b", b"c"):
        case.deliver(payload)
    tidied(case.uri)
    reader = Reader(spark, lake, Table(case.uri))
    first = reader.die()
    case.deliver(b"d")
    again = reader.read_on()
    assert again[0] == first[0] and sorted(values(first)) == ["a", "b", "c"]
    assert values({1: again[1]}) == ["d"]


@pytest.mark.long
@pytest.mark.parametrize("change", ["delete", "overwrite"])
def test_a_delta_table_that_lost_rows_is_refused_with_the_version(spark: SparkSession, lake: Lake, change: str) -> None:
    case = VersionsCase(lake)
    reader = Reader(spark, lake, case.source)
    case.deliver(b"a")
    reader.read_on()
    if change == "delete":
        DeltaTable(case.uri).delete("true")
    else:
        write_deltalake(case.uri, pa.table({"value": [b"z"]}), mode="overwrite")
    with pytest.raises(Exception, match="removed or changed rows") as raised:
        reader.read_on()
    error = case.source.explain(spark, reader.reading, str(raised.value))
    assert isinstance(error, SourceError)
    assert "version 2 of the table" in str(error) and "only grows" in str(error)


def test_a_table_that_was_replaced_or_rewound_is_refused_with_what_to_do(spark: SparkSession, lake: Lake) -> None:
    case = LogCase(lake)
    reader = Reader(spark, lake, case.source)
    for payload in (b"a", b"b"):
        case.deliver(payload)
    shutil.copytree(case.uri, f"{case.uri}-before")
    case.deliver(b"c")
    reader.read_on()

    shutil.rmtree(case.uri)
    shutil.move(f"{case.uri}-before", case.uri)
    with pytest.raises(SourceError, match="was rewound: the log has what was in it up to 4"):
        case.source.check_there(spark, reader.reading)

    case.change("0")
    with pytest.raises(SourceError, match=r"was replaced: its id was .*move its log and its checkpoint away"):
        case.source.read(spark, reader.reading)


@pytest.mark.long
def test_a_table_that_is_replaced_while_a_batch_of_it_is_read_is_not_appended(spark: SparkSession, lake: Lake) -> None:
    case = LogCase(lake)
    reader = Reader(spark, lake, case.source)
    case.deliver(b"a")
    reader.die()
    taken = reader.take(0)
    assert taken.remember(taken.rows, {})["offsets"] == {"unit": 1, "rows": 1}
    case.change("0")
    with pytest.raises(SourceError, match="was replaced while a batch of it was read"):
        taken.remember(taken.rows, {})


@pytest.mark.long
def test_a_checkpoint_that_was_moved_away_repeats_nothing(spark: SparkSession, lake: Lake) -> None:
    case = LogCase(lake)
    reader = Reader(spark, lake, case.source)
    case.deliver(b"a", b"b")
    reader.read_on()
    shutil.rmtree(reader.checkpoint)
    case.deliver(b"c")
    assert values(reader.read_on()) == ["c"]


@pytest.mark.long
def test_every_type_of_a_column_arrives_as_the_json_format_reads_it(spark: SparkSession, lake: Lake) -> None:
    declared = (
        "i bigint, d double, f float, s string, m decimal(38, 18), t timestamp, day date, flag boolean, "
        "items array<struct<name: string, n: double>>, tags map<string, float>, n timestamp_ntz"
    )
    rows = [
        (
            *(7, 0.1, 0.1, 'ü "quoted"\n', Decimal("10.50"), datetime(2026, 1, 1, 5, 30, 0, 123456, UTC)),
            *(date(2026, 1, 1), True, [("a", 1.0), None], {"k": 2.5}, datetime(2026, 1, 1, 5, 30, 0, 123456)),
        ),
        (
            *(-(2**63), math.nan, math.nan, "NaN", Decimal("12345678901234567890.123456789012345678")),
            *(datetime(1, 1, 1, 0, 0, 0, 1, UTC), date.min, False, [("NaN", math.nan), (None, -0.0)]),
            *({"NaN": math.nan, "none": None}, datetime(1, 1, 1)),
        ),
        (
            *(2**63 - 1, -math.inf, math.inf, "", Decimal("-0.000000000000000001")),
            *(datetime(9999, 12, 31, 23, 59, 59, 999999, UTC), date.max, None, [], {}),
            datetime(9999, 12, 31, 23, 59, 59, 999999),
        ),
        (*(0, -0.0, -0.0, None, Decimal(0), None, None, None, None, None, None),),
    ]
    uri = lake.path("typed")
    expected = spark.createDataFrame(rows, declared)
    expected.write.format("delta").partitionBy("day").save(uri)
    source = Table(uri)
    raw = [(payload,) for payload, _ in Reader(spark, lake, source).read_on()[0]]
    typed = spark.createDataFrame(raw, "_raw binary").withColumn(TYPED, source.is_typed(F.lit(None)))
    format_ = Json(declared.replace("timestamp_ntz", "string"))
    parsed = format_.parse(typed)
    assert tuples(parsed.select("_unreadable", "_wrong.*").distinct()) == [(None,) * 12]
    read = parsed.withColumn("n", F.col("n").cast("timestamp_ntz")).select(*expected.columns)
    # A double that is no number is not equal to itself, and two zeros are: their texts tell.
    assert repr(tuples(read)) == repr(tuples(expected))
    # Nobody else may say so.
    assert {row[0] for row in tuples(format_.parse(typed.drop(TYPED)), "_wrong.d")} == {
        None,
        'type: d is not a number within double, got "NaN"',
        'type: d is not a number within double, got "-Infinity"',
    }


def test_equal_rows_are_ordered_alike_in_whatever_files_they_lie() -> None:
    rows = pa.table(
        {
            "unit": [2, 1, 1, 1],
            "o": [{"p": "b", "n": 10}, {"p": "b", "n": 9}, {"p": "a", "n": 10}, None],
            "l": [[1], [3], [2], [1]],
        }
    )
    once = ordered(rows, "unit", ["o", "l"])
    assert once.to_pylist() == ordered(rows.take([3, 1, 0, 2]), "unit", ["o", "l"]).to_pylist()
    assert [row["o"] for row in once.to_pylist()] == [
        None,
        {"p": "a", "n": 10},
        {"p": "b", "n": 9},
        {"p": "b", "n": 10},
    ]


def test_rows_that_differ_in_the_sign_of_a_zero_are_ordered_alike_too() -> None:
    rows = pa.table(
        {"unit": [1] * 6, "x": [0.0, -0.0, None, float("nan"), -0.0, 1.0], "f": pa.array([-0.0, 0.0] * 3, pa.float32())}
    )
    once = repr(ordered(rows, "unit", ["x", "f"]).to_pylist())
    for places in ([5, 4, 3, 2, 1, 0], [1, 4, 0, 3, 5, 2]):
        assert repr(ordered(rows.take(places), "unit", ["x", "f"]).to_pylist()) == once


PARTITIONS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "double": (pa.float64(), [float("nan"), float("-inf"), -0.0, 0.1, None]),
    "instant": (
        pa.timestamp("us", "UTC"),
        [
            datetime(1, 1, 1, tzinfo=UTC),
            datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
            datetime(2026, 1, 1, tzinfo=UTC),
            None,
        ],
    ),
    "local": (pa.timestamp("us"), [datetime(2026, 1, 1, 5, 30, 0, 123456), None]),
    "day": (pa.date32(), [date.min, date.max, None]),
    "number": (pa.decimal128(38, 18), [Decimal("12345678901234567890.123456789012345678"), None]),
    "text": (pa.string(), ["NaN", "a/b=c %2F", "2026-01-01 05:30:00", None]),
}


@pytest.mark.parametrize("type_", PARTITIONS)
def test_a_value_by_which_files_are_parted_is_what_was_written(tmp_path: Path, type_: str) -> None:
    uri, (column_type, values_) = str(tmp_path / "parted"), PARTITIONS[type_]
    rows = pa.table({"id": range(len(values_)), "by": pa.array(values_, column_type)})
    write_deltalake(uri, rows, partition_by=["by"])
    expected = repr(sorted(rows.to_pylist(), key=lambda row: row["id"]))
    for start in (None, 0):
        reader = source_table(uri, None, {}, start).reader(1)
        begins = reader.first()
        pieces = reader.pieces(begins, reader.newest(begins))
        read = [row["payload"] for piece in pieces for batch in reader.read(piece) for row in batch.to_pylist()]
        assert repr(sorted(read, key=lambda row: row["id"])) == expected


def first_actions(uri: str) -> tuple[Path, list[dict[str, Any]]]:
    """The log of a new table, and the actions of its first commit."""
    entry = Path(uri, "_delta_log", f"{0:020}.json")
    return entry.parent, [json.loads(line) for line in entry.read_text().splitlines()]


def test_a_table_whose_files_have_other_columns_or_rows_is_refused(tmp_path: Path) -> None:
    """Values of the one were null, as files have its columns under other names; deleted rows of the other came."""
    mapped, deleted = str(tmp_path / "mapped"), str(tmp_path / "deleted")
    write_deltalake(mapped, pa.table({"id": [1, 2]}))
    entries, actions = first_actions(mapped)
    for action in actions:
        if "protocol" in action:
            action["protocol"] |= {"minReaderVersion": 2, "minWriterVersion": 5}
        if "metaData" in action:
            schema = json.loads(action["metaData"]["schemaString"])
            physical = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}
            schema["fields"][0]["metadata"] = physical
            action["metaData"]["schemaString"] = json.dumps(schema)
            action["metaData"]["configuration"]["delta.columnMapping.mode"] = "name"
    (entries / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))
    with pytest.raises(SourceError, match="its files have 'id' under another name"):
        source_table(mapped, None, {})

    in_parts = str(tmp_path / "in_parts")
    write_deltalake(in_parts, pa.table({"id": [1], "by": [b"\x01\xff"]}), partition_by="by")
    with pytest.raises(SourceError, match="is partitioned by the binary column 'by'"):
        source_table(in_parts, None, {})

    write_deltalake(deleted, pa.table({"id": [1, 2]}), configuration={"delta.enableDeletionVectors": "true"})
    source_table(deleted, None, {})
    entries, actions = first_actions(deleted)
    (added,) = (action["add"] for action in actions if "add" in action)
    vector = {"storageType": "i", "pathOrInlineDv": "0" * 40, "sizeInBytes": 40, "cardinality": 1}
    changed = [
        {"remove": {"path": added["path"], "deletionTimestamp": 1, "dataChange": True}},
        {"add": {**added, "deletionVector": vector}},
    ]
    (entries / f"{1:020}.json").write_text("\n".join(map(json.dumps, changed)))
    with pytest.raises(SourceError, match="has deletion vectors"):
        source_table(deleted, None, {})


@pytest.mark.parametrize(
    ("of", "options", "text"),
    [
        (7, {}, "write a stream, an operator"),
        ("", {}, "write the path"),
        ("s3://x/y", {"side": "late"}, "without a side output"),
        ("s3://x/y", {"rows_per_batch": 0}, "rows_per_batch=0"),
        ("s3://x/y", {"start_version": -1}, "start_version=-1"),
        (ORDERS, {"start_version": 3}, "start_version=3"),
    ],
)
def test_a_table_that_cannot_be_is_refused_where_it_is_declared(of: Any, options: dict[str, Any], text: str) -> None:
    with pytest.raises(DeclarationError, match=text):
        Table(of, **options)


def test_a_table_that_is_not_there_yet_says_what_to_run(spark: SparkSession, lake: Lake) -> None:
    with pytest.raises(SourceError, match="run `tidemark run orders` first"):
        Table(ORDERS).check_there(spark, Reader(spark, lake, Table(ORDERS)).reading)
