"""Files of a delivery: whole, in the folder of their time, under names that only the batch decides."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from streaming import Lake
from streaming.base.errors import DeclarationError, ProgressError, SinkError
from streaming.sinks.encoding import json_objects
from streaming.sinks.files import CsvFiles, FileTarget, JsonLines, ParquetFiles
from streaming.sinks.sink import REVISION, TIME, Delivered, NumberedBatch, Sink
from streaming.tables import storage
from tests.streaming.sinks.contract import LAWS, Arrivals, batch, deliver

KINDS = (JsonLines, CsvFiles, ParquetFiles)


def read(path: Path) -> list[dict[str, Any]]:
    match path.suffix:
        case ".json":
            return [json.loads(line) for line in path.read_text().splitlines()]
        case ".csv":
            return pyarrow.csv.read_csv(path).to_pylist()
    return pq.read_table(path).to_pylist()


def visible(root: Path) -> list[Path]:
    """What a careful reader lists: no name that begins with `.` or `_`."""
    paths = sorted(path for path in root.rglob("*") if path.is_file())
    return [path for path in paths if not any(part[0] in "._" for part in path.relative_to(root).parts)]


def arrivals(kind: type[FileTarget], lake: Lake) -> Arrivals:
    root = Path(lake.root, "out")
    return Arrivals(kind("out"), lake, lambda: [row["number"] for path in visible(root) for row in read(path)])


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("kind", KINDS)
def test_files_keep_the_contract_of_targets(
    kind: type[FileTarget], law: Callable[[Arrivals], None], lake: Lake
) -> None:
    law(arrivals(kind, lake))


def at(*instants: str) -> NumberedBatch:
    """A batch of rows at these instants, UTC."""
    times = [datetime.fromisoformat(text).replace(tzinfo=UTC) for text in instants]
    rows = {"number": list(range(len(times))), REVISION: list(range(len(times)))}
    return NumberedBatch(
        "numbers/all", 2, 7, pa.table(rows).append_column(TIME, pa.array(times, pa.timestamp("us", "UTC")))
    )


def names(lake: Lake) -> list[str]:
    root = Path(lake.root, "out")
    return [path.relative_to(root).as_posix() for path in visible(root)]


def put(target: FileTarget, lake: Lake, delivered: NumberedBatch) -> None:
    deliver(target.connect(lake, Delivered("numbers/all")), delivered)


def test_x10_hourly_buckets(lake: Lake) -> None:
    """A row at 17:59:59.999 and one at 18:00 lie in two folders."""
    put(JsonLines("out", by="hour", prefix="part-"), lake, at("2018-07-22T17:59:59.999", "2018-07-22T18:00:00"))
    assert names(lake) == [
        "2018-07-22--17/part-numbers-all-2-0000000007-0.json",
        "2018-07-22--18/part-numbers-all-2-0000000007-0.json",
    ]


def test_x11_a_part_is_rolled_before_the_row_that_finds_it_too_large(lake: Lake) -> None:
    """Five rows of 400 bytes, at most 1024 a file: the third row finds 802 and is taken, the fourth finds 1203."""
    rows = pa.table({"text": ["x" * 387] * 5, REVISION: [0] * 5})
    times = pa.array([datetime(2026, 1, 31, 23, tzinfo=UTC)] * 5, pa.timestamp("us", "UTC"))
    assert {len(line) for line in json_objects(rows.select(["text"]))} == {398}
    delivered = NumberedBatch("numbers/all", 0, 0, rows.append_column(TIME, times))
    put(JsonLines("out", prefix="user-data-", bytes_per_file=1024), lake, delivered)
    assert [(name, len(read(Path(lake.root, "out", name)))) for name in names(lake)] == [
        ("2026-01-31/user-data-numbers-all-0-0000000000-0.json", 3),
        ("2026-01-31/user-data-numbers-all-0-0000000000-1.json", 2),
    ]


def test_x12_a_batch_of_columns_is_one_set_of_files_however_often_it_is_put(lake: Lake) -> None:
    for _ in range(2):
        put(ParquetFiles("out", by="none", bytes_per_file=24), lake, batch(3, 1, 2, 3, 4))
    files = [read(Path(lake.root, "out", name)) for name in names(lake)]
    assert [[row["number"] for row in rows] for rows in files] == [[1, 2], [3, 4]]


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
def test_x5_whoever_lists_the_folder_sees_whole_files_only_wherever_the_writer_dies(
    nth: int, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A note of what is to come, two files and what tells of them are put; before each the writer dies, all written."""
    calls = 0
    durable = storage.make_durable

    def dies(path: str) -> None:
        nonlocal calls
        calls += 1
        if calls == nth:
            raise KeyboardInterrupt
        durable(path)

    monkeypatch.setattr(storage, "make_durable", dies)
    two_days = at("2026-01-01T00:00:00", "2026-01-02T00:00:00")
    with pytest.raises(KeyboardInterrupt):
        put(JsonLines("out"), lake, two_days)
    assert len(names(lake)) == max(0, nth - 2)
    assert all(len(read(Path(lake.root, "out", name))) == 1 for name in names(lake))
    progress_file = Path(lake.root, "out", "_delivered", "numbers-all.json")
    assert not progress_file.exists()

    put(JsonLines("out"), lake, two_days)
    assert len(names(lake)) == 2
    assert json.loads(progress_file.read_text()) == {"generation": 2, "batch": 7, "identity": ""}
    assert [path.name for path in Path(lake.root, "out").rglob(".*")] == []


def test_files_of_another_lake_are_not_replaced_by_those_of_a_delivery_of_the_same_name(lake: Lake) -> None:
    def begun(identity: str) -> Sink:
        return JsonLines("out", by="none").connect(lake, Delivered("numbers/all", identity))

    deliver(begun("one lake"), batch(0, 1, 2, 3))
    before = {path: path.read_bytes() for path in visible(Path(lake.root, "out"))}
    with pytest.raises(ProgressError, match=r"has progress of another delivery .* move away the file") as refused:
        deliver(begun("another"), batch(0, 7))
    assert "'numbers-all-'" in str(refused.value)
    assert {path: path.read_bytes() for path in visible(Path(lake.root, "out"))} == before
    deliver(begun("one lake"), batch(1, 4))
    # An earlier release did not say whose they are.
    progress = Path(lake.root, "out", "_delivered", "numbers-all.json")
    progress.write_text(json.dumps({"generation": 0, "batch": 1}))
    deliver(begun("one lake"), batch(2, 5))
    assert json.loads(progress.read_text()) == {"generation": 0, "batch": 2, "identity": "one lake"}


def test_a_process_that_slept_does_not_take_back_what_is_told_of_whole_batches(lake: Lake) -> None:
    for number in (0, 1, 0):
        put(JsonLines("out"), lake, batch(number, number))
    assert json.loads(Path(lake.root, "out", "_delivered", "numbers-all.json").read_text())["batch"] == 1


def test_a_batch_that_is_cut_into_other_files_when_it_is_repeated_leaves_none_of_the_first_attempt(lake: Lake) -> None:
    two_days = at("2026-01-01T00:00:00", "2026-01-02T00:00:00")
    put(JsonLines("out"), lake, batch(6, 1))
    put(JsonLines("out"), lake, two_days)
    put(JsonLines("out", by="none"), lake, two_days)
    assert names(lake) == ["2026-01-01/numbers-all-0-0000000006-0.json", "numbers-all-2-0000000007-0.json"]


def test_rows_without_a_time_have_a_folder_of_their_own(lake: Lake) -> None:
    rows = pa.table({"number": [1], REVISION: [1], TIME: pa.array([None], pa.timestamp("us", "UTC"))})
    put(JsonLines("out"), lake, NumberedBatch("numbers/all", 0, 0, rows))
    assert names(lake) == ["unknown/numbers-all-0-0000000000-0.json"]


def test_json_has_every_type_that_a_row_may_have() -> None:
    row = {
        "instant": datetime(2026, 1, 2, 3, 4, 5, 678, UTC),
        "price": Decimal("1.10"),
        "nan": float("nan"),
        "text": 'a"\n\u2028é',
        "bytes": b"\xffa",
        "list": [{"a": 1}],
        "nothing": None,
    }
    (line,) = json_objects(pa.Table.from_pylist([row]))
    assert b"\n" not in line
    assert json.loads(line) == {
        "instant": "2026-01-02T03:04:05.000678Z",
        "price": "1.10",
        "nan": "NaN",
        "text": 'a"\n\u2028é',
        "bytes": "\\xffa",
        "list": [{"a": 1}],
        "nothing": None,
    }


def test_csv_keeps_what_has_no_column_of_its_own_as_json(lake: Lake) -> None:
    rows = pa.table({"names": [["a,b", 'c"']], "what": [b"x"], REVISION: [0]})
    times = pa.array([datetime(2026, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    put(CsvFiles("out"), lake, NumberedBatch("numbers/all", 0, 0, rows.append_column(TIME, times)))
    (row,) = read(Path(lake.root, "out", names(lake)[0]))
    assert (json.loads(row["names"]), row["what"]) == (["a,b", 'c"'], "x")


def test_a_folder_that_cannot_be_written_is_away(lake: Lake) -> None:
    Path(lake.root).mkdir()
    Path(lake.root, "out").write_text("a file where the folder should be")
    with pytest.raises(SinkError, match=r"the files of batch numbers/all/0/0 cannot be put below .*/out'"):
        put(JsonLines("out"), lake, batch(0, 1))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"by": "week"}, "by='week' is no way to sort files into folders; use date, hour, none"),
        ({"bytes_per_file": 0}, "bytes_per_file=0 holds no row"),
        ({"prefix": "_data-"}, "readers pass over names that begin with"),
        ({"suffix": "/x"}, "'/' ends a folder"),
    ],
)
def test_what_cannot_be_a_file_is_refused(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(DeclarationError, match=reason):
        JsonLines("out", **given)


def test_the_contract_sees_a_target_that_delivers_twice(lake: Lake) -> None:
    class Twice(JsonLines):
        def connect(self, lake: Lake, delivered: Delivered) -> Any:
            return super().connect(lake, replace(delivered, name=f"{len(names(lake))}"))

    with pytest.raises(AssertionError):
        LAWS[0](arrivals(Twice, lake))
