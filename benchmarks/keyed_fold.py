"""The cost per row of a keyed function's fold, in Python alone: `python -m benchmarks.keyed_fold`.

Arrow batches of ten thousand rows as Spark hands them to a task, of the temperature jump (K6) over keys that have
state. Beside it stand the parts: columns to Python values, and the functions themselves. `--hot` is a task that is
given but one key, and the most memory that this process has had by then.
"""

from __future__ import annotations

import cProfile
import pstats
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import groupby, pairwise, repeat
from operator import itemgetter
from typing import Any

import psutil
import pyarrow as pa

from benchmarks.processes import peak_memory
from streaming import BoundedOutOfOrderness, Files, Json, Key, Keyed, Stream
from streaming.keyed.state_table import Buckets, StoredState
from streaming.keyed.tasks import BucketFile, WriteTables, fold_partition

ROWS, KEYS, BATCH = 200_000, 100_000, 10_000
_TIMES = 7
_HOT = (100_000, 1_000_000, 4_000_000)
_TIME = pa.timestamp("us", "UTC")

readings = Stream(
    "readings",
    Files("landing/readings"),
    Json("id bigint not null, at timestamp not null, value double"),
    "at",
    BoundedOutOfOrderness("0 seconds"),
)


def on_jump(key: Key, row: Any) -> None:
    """Tell a value that is far from the one before it."""
    if key.previous is not None and abs(row.value - key.previous) > 1.7:
        key.emit(value=row.value, jump=abs(row.value - key.previous))
    key.previous = row.value


jumps = Keyed("jumps", readings, ("id",), "previous double", "value double, jump double", on_jump)

COLUMNS = pa.schema(
    [
        ("_hash", pa.int64()),
        ("_key0", pa.int64()),
        ("_time", _TIME),
        ("_stamp", _TIME),
        ("_batch", pa.int64()),
        ("_stream", pa.int32()),
        ("_value0_0", _TIME),
        ("_value0_1", pa.float64()),
    ]
)
STATE = pa.schema(
    [
        ("_hash", pa.int64()),
        ("_due", _TIME),
        ("id", pa.int64()),
        ("previous", pa.float64()),
        ("_timers", pa.map_(pa.string(), _TIME)),
    ]
)
RESULT = pa.schema(
    [("id", pa.int64()), ("_at", _TIME), ("value", pa.float64()), ("jump", pa.float64()), ("_written_at", _TIME)]
)


def drawn() -> tuple[list[tuple[int, int]], list[pa.RecordBatch]]:
    """The keys with their hashes, by these, and batches of rows sorted as a task gets them."""
    random_ = random.Random(7)
    keys = sorted((random_.randrange(-(1 << 63), 1 << 63), key) for key in range(KEYS))
    places = sorted(random_.randrange(KEYS) for _ in range(ROWS))
    rows = [
        (*keys[place], now, None, 3, 0, now, random_.gauss(20, 0.7)) for now, place in enumerate(places, 1_700_000_000)
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), COLUMNS, strict=True)]
    whole = pa.RecordBatch.from_arrays(arrays, schema=COLUMNS)
    return keys, [whole.slice(start, BATCH) for start in range(0, ROWS, BATCH)]


def stored(folder: str, keys: list[tuple[int, int]]) -> StoredState:
    """State of every key, in buckets."""
    buckets, files = Buckets.of_size(len(keys), 0), {}
    for bucket, of_bucket in groupby(keys, lambda entry: buckets.of(entry[0])):
        file = BucketFile(bucket, folder, STATE)
        for hash_of_key, key in of_bucket:
            file.add((hash_of_key, None, key, 20.0, []))
        files[bucket] = (file.close()["path"],)
    return StoredState(buckets, 1, folder, STATE, files)


def micros_a_row(run: Callable[[], object]) -> float:
    """CPU of this process, median."""
    costs = []
    for _ in range(_TIMES):
        before = time.process_time()
        run()
        costs.append(time.process_time() - before)
    return statistics.median(costs) / ROWS * 1e6


def hot(task: WriteTables, batch: pa.RecordBatch, rows: int) -> tuple[float, float]:
    """CPU in microseconds a row of a task that is given so many of one key, and the peak of this process in MB."""
    one_key = {"_hash": batch["_hash"][0], "_key0": batch["_key0"][0]}
    columns = [
        pa.repeat(one_key[name], batch.num_rows) if name in one_key else batch[name] for name in batch.schema.names
    ]
    of_key = pa.RecordBatch.from_arrays(columns, schema=batch.schema)
    before = time.process_time()
    for _ in task(repeat(of_key, rows // batch.num_rows)):
        pass
    return (time.process_time() - before) / rows * 1e6, peak_memory(psutil.Process()) / 2**20


def main() -> None:
    """Print a Markdown table; `--profile` adds where the time of a task goes, `--hot` is that of one key instead."""
    keys, batches = drawn()
    with tempfile.TemporaryDirectory() as folder:
        state = stored(folder, keys)
        task = WriteTables(jumps, 0, {"": folder}, {"": RESULT}, 0, state)
        if "--hot" in sys.argv:
            print("| rows of one key | µs a row | peak, MB |\n|---|---|---|")
            for number in _HOT:
                cost, peak = hot(task, batches[0], number)
                print(f"| {number:,} | {cost:.2f} | {peak:,.0f} |", flush=True)
            return
        rows = [row for batch in batches for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)]
        values = list(map(itemgetter(7), rows))
        costs = {
            "the function's own work alone": lambda: [abs(one - two) > 1.7 for one, two in pairwise(values)],
            "fold, keys without state": lambda: list(fold_partition(jumps, 0, batches)),
            "fold, keys with state": lambda: list(fold_partition(jumps, 0, batches, None, state)),
            "task: fold, and files of results and state": lambda: list(task(batches)),
        }
        print("| what | µs a row |\n|---|---|")
        for what, run in costs.items():
            print(f"| {what} | {micros_a_row(run):.2f} |", flush=True)
        if "--profile" in sys.argv:
            profile = cProfile.Profile()
            profile.runcall(lambda: list(task(batches)))
            pstats.Stats(profile).sort_stats("tottime").print_stats(14)


if __name__ == "__main__":
    main()
