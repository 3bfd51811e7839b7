"""Which changes of a function's state are taken for additions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streaming.keyed.added_state import counts_as
from tests.streaming.keyed.functions import jumps

OLD = "last double"


@pytest.mark.parametrize(
    ("before", "after", "is_added_to"),
    [
        (OLD, f"{OLD}, rows bigint", True),
        ("", OLD, True),
        ("", "", False),
        (OLD, "", False),
        (OLD, "newest double", False),
        (OLD, "last bigint, rows bigint", False),
    ],
)
def test_state_counts_as_today_s_only_where_fields_were_added(before: str, after: str, is_added_to: bool) -> None:
    keyed, makes = replace(jumps, state=after), {"state": before, "version": 1}
    assert counts_as(keyed, makes) == ({**makes, "state": after} if is_added_to else makes)
