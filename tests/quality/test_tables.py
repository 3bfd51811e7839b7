"""Rows that are written in one commit."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from quality.verdicts import write_rows


def test_rows_that_come_in_several_pieces_stay_in_their_order(tmp_path: Path) -> None:
    pieces = pa.concat_tables([pa.table({"place": [1, 2]}), pa.table({"place": [3, 4, 5]})])
    # By chance, pieces that are written side by side are in order half the time.
    for number in range(10):
        uri = str(tmp_path / str(number))
        write_rows(uri, pieces, "overwrite", metadata={}, description="places")
        assert DeltaTable(uri).to_pyarrow_table()["place"].to_pylist() == [1, 2, 3, 4, 5]
