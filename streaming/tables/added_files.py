"""The Parquet files of one write, as a commit adds them to a table."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from streaming.base import DAY
from streaming.tables.file_statistics import file_statistics
from streaming.tables.storage import files_of

NO_DAY = "__HIVE_DEFAULT_PARTITION__"
"""How the folder of rows without a day is called."""


def added_files(
    table: DeltaTable, folder: str, statistics: Sequence[str]
) -> tuple[list[AddAction | RemoveAction], int]:
    """The files below `folder` of the table that hold rows, and how many rows those are.

    `statistics` names the columns whose bounds are kept.
    """
    files = files_of(table)
    selector = pa_fs.FileSelector(folder, recursive=True, allow_not_found=True)
    actions: list[AddAction | RemoveAction] = []
    total = 0
    for info in files.get_file_info(selector):
        if not info.path.endswith(".parquet"):
            continue
        with files.open_input_file(info.path) as handle:
            footer = pq.ParquetFile(handle).metadata
        if footer.num_rows == 0:
            continue
        day = info.path.partition(f"/{DAY}=")[2].partition("/")[0]
        total += footer.num_rows
        actions.append(
            AddAction(
                path=info.path,
                size=info.size,
                partition_values={DAY: None if day == NO_DAY else day} if day else {},
                modification_time=int(time.time() * 1000),
                data_change=True,
                stats=json.dumps(file_statistics(footer, statistics)),
            )
        )
    return actions, total
