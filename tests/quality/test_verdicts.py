"""The table of verdicts, as older versions of the platform have left it."""

from __future__ import annotations

from dataclasses import asdict

import pyarrow as pa
import pytest

from quality import Verdict, store_verdicts, verdicts_for
from quality.tables import write_rows
from streaming.lake.lake import Lake
from tests.support.instants import at


@pytest.mark.parametrize("value", [0.0, 2.5, None])
def test_verdicts_with_a_number_follow_those_that_were_stored_without_one(lake: Lake, value: float | None) -> None:
    old = Verdict("orders/log", "id", 0, "unique_key", "{}", "passed", "0 rows", "run-1", at(0))
    row = {name: entry for name, entry in asdict(old).items() if name != "value"}
    write_rows(lake.verdicts(), pa.Table.from_pylist([row]), "append", metadata={}, description="Older.")

    new = Verdict("orders/log", "id", 1, "unique_key", "{}", "failed", "2.5", "run-2", at(60), value)
    store_verdicts(lake, [new])

    assert verdicts_for(lake, "orders/log", 0) == {"unique_key": old}
    assert verdicts_for(lake, "orders/log", 1) == {"unique_key": new}
