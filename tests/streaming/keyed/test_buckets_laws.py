"""However state is cut into buckets, and however often their number changes, a function says and keeps the same."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.base import to_micros
from streaming.keyed.fold import NEVER
from streaming.keyed.state_table import Buckets, StoredState, state_schema
from streaming.keyed.tasks import WriteTables
from tests.streaming.keyed.test_laws import BATCHES, DELAY, Batch, function
from tests.streaming.keyed.test_partition import first_hash
from tests.support.instants import at, ms
from tidemark.testing import play

_TIME = pa.timestamp("us", "UTC")
KEYED = function("arrival", idle=True)
KEYS = pa.schema([("id", pa.string())])
ROWS = pa.schema(
    [
        *(("_hash", pa.int64()), ("_key0", pa.string()), ("_time", _TIME), ("_stamp", _TIME), ("_batch", pa.int64())),
        *(("_stream", pa.int32()), ("timestamp", pa.int64()), ("temperature", pa.float64()), ("event_time", _TIME)),
    ]
)
OUTPUTS = {
    to: pa.schema([*KEYS, pa.field("_at", _TIME), *schema, pa.field("_written_at", _TIME)])
    for to, schema in KEYED.output_schemas.items()
}


class Tables:
    """What a function has written so far: rows by output, and the files of its state, each with its first timer."""

    def __init__(self, folder: str, hashes: dict[str, int]) -> None:
        self.outputs: dict[str, list[tuple[Any, ...]]] = {to: [] for to in OUTPUTS}
        self._folder = folder
        self._hashes = hashes
        self._files: list[tuple[str, int, int, int]] = []
        self._count: int | None = None

    def step(self, batches: list[tuple[int, float, Batch]], clock: float, count: int) -> None:
        """Follow batches (number, stamp, rows) with so many buckets, as a step does."""
        buckets, limit = Buckets(count), NEVER if clock == float("-inf") else to_micros(at(clock))
        files: dict[int, tuple[str, ...]] = {}
        visited = set()
        for path, first, last, due in self._files:
            for bucket in range(buckets.of(first), buckets.of(last) + 1):
                files[bucket] = (*files.get(bucket, ()), path)
                visited |= {bucket} if due <= limit or count != self._count else set()
        state = StoredState(buckets, 1, self._folder, state_schema(KEYED, KEYS), files, frozenset(visited))
        rows = [*self._rows(batches), *({"_hash": first_hash(buckets, bucket)} for bucket in range(count))]
        rows.sort(key=lambda row: (row["_hash"], row.get("_key0") or "", row.get("_batch", -1)))
        task = WriteTables(KEYED, limit, dict.fromkeys(OUTPUTS, self._folder), OUTPUTS, 0, state)
        parts = [pa.RecordBatch.from_pylist(rows[start : start + 3], schema=ROWS) for start in range(0, len(rows), 3)]
        folded = {}
        for report in (row for written in task(parts) for row in written.to_pylist()):
            assert report["error"] is None
            if report["bucket"] is not None:
                folded[report["bucket"]] = (report["path"], report["due"])
            else:
                table = pq.read_table(f"{self._folder}/{report['path']}", partitioning=None).drop_columns("_written_at")
                self.outputs[report["suffix"]] += [tuple(row.values()) for row in table.to_pylist()]
        left = [file for file in self._files if not self._is_of(file, buckets, set(folded))]
        for path, due in (entry for entry in folded.values() if entry[0] is not None):
            hashes = pq.read_table(f"{self._folder}/{path}", columns=["_hash"], partitioning=None)["_hash"].to_pylist()
            left.append((path, min(hashes), max(hashes), due))
        self._files, self._count = left, count

    @property
    def state(self) -> dict[str, tuple[dict[str, Any], dict[str, datetime]]]:
        """Fields and timers of each key, of which there is one row at most."""
        rows = [
            row
            for path, *_ in self._files
            for row in pq.read_table(f"{self._folder}/{path}", partitioning=None).to_pylist()
        ]
        assert len({row["id"] for row in rows}) == len(rows)
        return {
            row["id"]: ({name: row[name] for name in KEYED.state_schema.names}, dict(row["_timers"])) for row in rows
        }

    def _rows(self, batches: list[tuple[int, float, Batch]]) -> Iterator[dict[str, Any]]:
        for number, stamp, rows in batches:
            for key, when, value in rows:
                stamped = None if stamp == float("-inf") else at(stamp)
                of_row = {"_hash": self._hashes[key], "_key0": key, "_time": at(when), "_stamp": stamped}
                values = {"timestamp": ms(at(when)), "temperature": float(value), "event_time": at(when)}
                yield {**of_row, "_batch": number, "_stream": 0, **values}

    def _is_of(self, file: tuple[str, int, int, int], buckets: Buckets, folded: set[int]) -> bool:
        return any(bucket in folded for bucket in range(buckets.of(file[1]), buckets.of(file[2]) + 1))


HASHES = st.sampled_from([-(1 << 63), -1, 0, 1, 1 << 62, (1 << 63) - 1])


@settings(max_examples=150, deadline=None)
@given(
    batches=BATCHES,
    cuts=st.lists(st.tuples(st.integers(1, 3), st.sampled_from([2, 4, 64])), min_size=6, max_size=6),
    hashes=st.tuples(HASHES, HASHES),
)
def test_any_cut_into_steps_and_buckets_gives_what_one_that_knows_no_buckets_gives(
    batches: list[Batch], cuts: list[tuple[int, int]], hashes: tuple[int, int]
) -> None:
    drawn = [
        [
            {"id": key, "timestamp": ms(at(when)), "temperature": float(value), "event_time": at(when)}
            for key, when, value in batch
        ]
        for batch in batches
    ]
    played = play(KEYED, *drawn)
    greatest, stamped = float("-inf"), []
    for number, batch in enumerate(batches):
        stamped.append((number, greatest - DELAY, batch))
        greatest = max([greatest, *(when for _, when, _ in batch)])
    marks = [stamp for _, stamp, _ in stamped[1:]] + [greatest - DELAY]
    with tempfile.TemporaryDirectory() as folder:
        tables, done = Tables(folder, dict(zip("ab", hashes, strict=True))), 0
        for size, count in cuts:
            if stamped[done : done + size]:
                end = min(done + size, len(stamped))
                tables.step(stamped[done:end], marks[end - 1], count)
                done = end
        while done < len(stamped):
            tables.step(stamped[done : done + 1], marks[done], 4)
            done += 1
        assert {to: sorted(rows, key=repr) for to, rows in tables.outputs.items()} == {
            to: sorted(rows, key=repr) for to, rows in played.outputs.items()
        }
        assert {key: state for key, (state, _) in tables.state.items()} == {
            key: dict(state) for (key,), state in played.state.items()
        }
        assert {key: timers for key, (_, timers) in tables.state.items()} == {
            key: dict(timers) for (key,), timers in played.timers.items()
        }
